// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/hostlist"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/rounded"
)

// jobFilter is what job list is asked for.
type jobFilter struct {
	limit                      uint32
	me                         bool
	user, profile, node, since string
	states                     []string

	uid   *uint32
	ref   kb.Ref
	nodes []string
	from  time.Time
}

func (a *app) jobListCommand() *cobra.Command {
	var f jobFilter
	c := a.command("list", "List the jobs that requested a kernel, newest first", cobra.NoArgs,
		func(ctx context.Context, _ []string) error { return a.jobList(ctx, f) })
	flags := c.Flags()
	flags.Uint32Var(&f.limit, "limit", 100, "most jobs to list, up to 1000")
	flags.BoolVar(&f.me, "me", false, "only your own jobs")
	flags.StringVarP(&f.user, "user", "u", "", "only jobs of this user, a `name` or a uid")
	flags.StringSliceVar(&f.states, "state", nil, "only jobs in these `phases`: "+strings.Join(phases(), ", "))
	flags.StringVar(&f.profile, "profile", "", "only jobs with this profile, `NAME` or NAME@VERSION")
	flags.StringVar(&f.node, "node", "", "only jobs on any of these `nodes`, such as n[1-3]")
	flags.StringVar(&f.since, "since", "", "only jobs that began since this `time`: 2026-11-28, 2026-11-28T13:00, 90m, 12h or 30d")
	c.MarkFlagsMutuallyExclusive("me", "user")
	return c
}

// phases are the words of job list's PHASE.
func phases() (words []string) {
	values := api.AllocationPhase(0).Descriptor().Values()
	for i := 1; i < values.Len(); i++ {
		words = append(words, jobPhase(&api.Job{Phase: api.AllocationPhase(values.Get(i).Number())}))
	}
	return words
}

// read finds what is wrong with a filter before the broker is asked.
func (f *jobFilter) read(now time.Time) error {
	if f.limit == 0 || f.limit > mostJobs {
		return usageError{fmt.Errorf("--limit %d: write a number from 1 to %d", f.limit, mostJobs)}
	}
	for _, state := range f.states {
		if !slices.Contains(phases(), state) {
			return usageError{fmt.Errorf("--state %q is not one of %s", state, strings.Join(phases(), ", "))}
		}
	}
	if f.profile != "" {
		ref, err := kb.ParseRef(f.profile)
		if err != nil {
			return usageError{fmt.Errorf("--profile: %w", err)}
		}
		f.ref = ref
	}
	if f.node != "" {
		nodes, err := hostlist.Expand(f.node)
		if err != nil {
			return usageError{fmt.Errorf("--node: %w", err)}
		}
		f.nodes = nodes
	}
	if f.since != "" {
		from, err := timeSince(f.since, now)
		if err != nil {
			return usageError{fmt.Errorf("--since: %w", err)}
		}
		f.from = from
	}
	return f.readUser()
}

func (f *jobFilter) readUser() error {
	switch {
	case f.me:
		f.uid = new(uint32(os.Getuid()))
	case f.user != "":
		text := f.user
		if known, err := user.Lookup(f.user); err == nil {
			text = known.Uid
		}
		uid, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			return usageError{fmt.Errorf("--user %q: this host knows no such user; write a name or a uid", f.user)}
		}
		f.uid = new(uint32(uid))
	}
	return nil
}

// timeSince reads a day, a time of the reader's zone, or how long ago it was.
func timeSince(text string, now time.Time) (time.Time, error) {
	for _, layout := range []string{"2006-01-02", "2006-01-02T15:04", "2006-01-02T15:04:05", "2006-01-02 15:04"} {
		if at, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			return at, nil
		}
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at, nil
	}
	if days, found := strings.CutSuffix(text, "d"); found {
		if n, err := strconv.ParseUint(days, 10, 16); err == nil {
			return now.AddDate(0, 0, -int(n)), nil
		}
	}
	if ago, err := time.ParseDuration(text); err == nil && ago > 0 {
		return now.Add(-ago), nil
	}
	return time.Time{}, fmt.Errorf("%q is no time; write 2026-11-28, 2026-11-28T13:00, 90m, 12h or 30d", text)
}

// takes reports whether a job is one that is asked for. A job that waits has not begun: it is of now.
func (f *jobFilter) takes(j *api.Job) bool {
	return (len(f.states) == 0 || slices.Contains(f.states, jobPhase(j))) &&
		(f.ref.Profile == "" || f.ref.Profile == j.GetProfile() && (f.ref.Version == 0 || f.ref.Version == j.GetVersion())) &&
		(f.nodes == nil || slices.ContainsFunc(j.GetNodes(), func(node string) bool { return slices.Contains(f.nodes, node) })) &&
		(isWaiting(j) || !begin(j).Before(f.from))
}

// narrow reports whether jobs are left out that the broker sends.
func (f *jobFilter) narrow() bool {
	return len(f.states) > 0 || f.ref.Profile != "" || f.nodes != nil || !f.from.IsZero()
}

func (a *app) jobList(ctx context.Context, f jobFilter) error {
	now := time.Now()
	if err := f.read(now); err != nil {
		return err
	}
	jobs, err := a.filtered(ctx, &f)
	if err != nil {
		return err
	}
	sum := totalsOf(jobs, now)
	if a.isTable() {
		none := "no jobs requested a kernel"
		if f.narrow() || f.uid != nil {
			none = "no such job"
		}
		return a.page(a.orNone(len(jobs), none, func(p *page) {
			jobRows(p, jobs)
			p.line("")
			p.sentence("%s", sum)
		}))
	}
	messages := make([]json.RawMessage, len(jobs))
	for i, j := range jobs {
		if messages[i], err = marshal(j); err != nil {
			return err
		}
	}
	return a.showValue(struct {
		Jobs   []json.RawMessage `json:"jobs"`
		Totals totals            `json:"totals"`
	}{messages, sum}, nil)
}

// filtered asks the broker for as many jobs as one answer takes.
func (a *app) filtered(ctx context.Context, f *jobFilter) ([]*api.Job, error) {
	asked := []uint32{f.limit}
	if f.narrow() {
		asked = []uint32{mostJobs, mostJobs / 4, mostJobs / 20}
	}
	for i, limit := range asked {
		jobs, err := a.jobs(ctx, &api.ListJobsRequest{Limit: limit, Uid: f.uid, Waiting: true})
		if status.Code(err) == codes.ResourceExhausted && i+1 < len(asked) {
			continue // the records of wide jobs are long
		}
		if err != nil {
			return nil, err
		}
		full := len(jobs) == int(limit)
		oldest := full && (f.from.IsZero() || !begin(jobs[len(jobs)-1]).Before(f.from))
		jobs = slices.DeleteFunc(jobs, func(j *api.Job) bool { return !f.takes(j) })
		if f.narrow() && oldest {
			a.say("note: only the newest %d jobs were searched", limit)
		}
		return jobs[:min(len(jobs), int(f.limit))], nil
	}
	return nil, errors.New("no limit was asked for")
}

// totals are what jobs spent on their kernels.
type totals struct {
	Jobs int `json:"jobs"`
	// Waiting is until their nodes were asked for the kernel, Switching from then until all had proved it.
	Waiting   float64 `json:"waiting_seconds"`
	Switching float64 `json:"switching_seconds"`
}

func (t totals) String() string {
	of := func(s float64) string { return rounded.Time(time.Duration(s * float64(time.Second))) }
	return fmt.Sprintf("%s waited %s for a turn and %s for the switch", count(t.Jobs, "job"), of(t.Waiting), of(t.Switching))
}

func totalsOf(jobs []*api.Job, now time.Time) totals {
	t := totals{Jobs: len(jobs)}
	for _, j := range jobs {
		if len(j.GetTimeline()) == 0 {
			continue // it waits for its nodes
		}
		turn, over := stepsOf(j, now)
		t.Waiting += max(0, turn.Sub(begin(j))).Seconds()
		t.Switching += max(0, over.Sub(turn)).Seconds()
	}
	return t
}

// stepsOf returns when a job's nodes were asked for the kernel, and when it had it or was not to get it any more: now, if it
// still waits.
func stepsOf(j *api.Job, now time.Time) (turn, over time.Time) {
	for _, e := range j.GetTimeline() {
		if e.GetNode() != "" {
			continue
		}
		at := e.GetAt().AsTime()
		switch kb.Phase(e.GetEvent()) {
		case kb.PhaseSwitching:
			turn = at
		case kb.PhaseReady, kb.PhaseFailed, kb.PhaseReturning, kb.PhaseDone:
			if over.IsZero() {
				over = at
			}
		}
	}
	if over.IsZero() {
		if over = begin(j); isStarting(j) {
			over = now
		}
	}
	if turn.IsZero() {
		turn = over
	}
	return turn, over
}
