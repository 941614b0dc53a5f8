// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
)

func TestJobListFilters(t *testing.T) {
	f := newFixture(t)
	f.jobs.list = append(someJobs(), &api.Job{JobId: 15, Reference: "15", User: "alice", Profile: "other", Version: 2,
		Phase: api.AllocationPhase_ALLOCATION_PHASE_WAITING, Reason: "it waits in Slurm: Priority"})
	for line, want := range map[string]string{
		"":                                "12_1 13 15",
		"--state done,waiting":            "12_1 15",
		"--state failed":                  "13",
		"--profile mitgcm":                "12_1 13",
		"--profile other@2":               "15",
		"--profile other@1":               "",
		"--node n[2-5]":                   "13",
		"--node n1 --state done":          "12_1",
		"--since 2026-11-20":              "12_1 13 15",
		"--since 2026-11-20T13:00:02":     "13 15",
		"--since 2026-11-20T12:00:02Z":    "13 15",
		"--since 2030-01-01 --state done": "",
		"--limit 1":                       "12_1",
	} {
		var got struct{ Jobs []struct{ Reference string } }
		if err := json.Unmarshal([]byte(f.must(0, "", append([]string{"job", "list", "-o", "json"}, strings.Fields(line)...)...)), &got); err != nil {
			t.Fatal(err)
		}
		var jobs []string
		for _, j := range got.Jobs {
			jobs = append(jobs, j.Reference)
		}
		if strings.Join(jobs, " ") != want {
			t.Errorf("%s: jobs %v, want %s", line, jobs, want)
		}
		if !f.jobs.asked.GetWaiting() {
			t.Errorf("%s: jobs that wait are not asked for", line)
		}
	}
	f.must(0, "", "job", "list", "--me")
	if uid := f.jobs.asked.Uid; uid == nil || int(*uid) != os.Getuid() {
		t.Errorf("--me asks for the jobs of %v", uid)
	}
	f.must(0, "", "job", "list", "-u", "4711")
	if uid := f.jobs.asked.Uid; uid == nil || *uid != 4711 {
		t.Errorf("--user 4711 asks for the jobs of %v", uid)
	}
	f.must(0, "no such job", "job", "list", "--profile", "nothing")
}

// The records of wide jobs are long: fewer are asked for then, with a word.
func TestJobListOfWideJobs(t *testing.T) {
	f := newFixture(t)
	f.jobs.most = 60
	for i := range 100 {
		j := someJobs()[0]
		j.Reference = fmt.Sprint(i)
		f.jobs.list = append(f.jobs.list, j)
	}
	f.must(0, "only the newest 50 jobs were searched", "job", "list", "--state", "done")
}

// Mistakes are found before the broker is asked.
func TestJobListRefuses(t *testing.T) {
	for line, words := range map[string]string{
		"--state ready-ish":       `--state "ready-ish" is not one of accepted, switching, ready`,
		"--since yesterdayish":    `"yesterdayish" is no time; write 2026-11-28`,
		"--node n[1":              "--node: ",
		"--profile MIT/gcm":       "--profile: ",
		"--user no-such-person":   "this host knows no such user",
		"--limit 0":               "from 1 to 1000",
		"--limit 1001":            "from 1 to 1000",
		"--me --user root":        "me user",
		"--since 0s --state done": "is no time",
	} {
		code, _, stderr := runAt(t, "unix:///nowhere", append([]string{"job", "list"}, strings.Fields(line)...)...)
		if code != exitUsage || !strings.Contains(stderr, words) {
			t.Errorf("%s: exit %d, %s", line, code, stderr)
		}
	}
}

func TestTotals(t *testing.T) {
	job := func(phase api.AllocationPhase, events ...string) *api.Job {
		j := &api.Job{Phase: phase}
		for i, event := range events {
			j.Timeline = append(j.Timeline, &api.TimelineEvent{At: at(i * 10_000), Event: event}, &api.TimelineEvent{At: at(i*10_000 + 1000), Node: "n1", Event: "ready"})
		}
		return j
	}
	const (
		done      = api.AllocationPhase_ALLOCATION_PHASE_DONE
		failed    = api.AllocationPhase_ALLOCATION_PHASE_FAILED
		switching = api.AllocationPhase_ALLOCATION_PHASE_SWITCHING
		accepted  = api.AllocationPhase_ALLOCATION_PHASE_ACCEPTED
	)
	for name, c := range map[string]struct {
		job             *api.Job
		waited, switche float64
	}{
		"done":                     {job(done, "accepted", "switching", "ready", "running", "returning", "done"), 10, 10},
		"failed on the way":        {job(failed, "accepted", "switching", "failed"), 10, 10},
		"refused":                  {job(failed, "accepted", "failed"), 10, 0},
		"cancelled while it boots": {job(done, "accepted", "switching", "returning", "done"), 10, 10},
		"on its way":               {job(switching, "accepted", "switching"), 10, 50},
		"before its turn":          {job(accepted, "accepted"), 60, 0},
		"in Slurm's queue":         {job(api.AllocationPhase_ALLOCATION_PHASE_WAITING), 0, 0},
	} {
		got := totalsOf([]*api.Job{c.job}, noon.Add(time.Minute))
		if got.Waiting != c.waited || got.Switching != c.switche || got.Jobs != 1 {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
