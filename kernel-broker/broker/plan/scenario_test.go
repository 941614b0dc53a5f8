// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

var update = flag.Bool("update", false, "write what comes out into testdata")

// TestScenarios tells the stories in testdata. A line that begins with > is
// what happens in the cluster; the lines below it are what the plan makes of
// it, until nothing changes any more. After every step a broker that was just
// started, and has heard of no agent yet, must leave all records as they are.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no stories: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := play(t, string(text))
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != string(text) {
				t.Errorf("another story comes out, see with -update:\n%s", got)
			}
		})
	}
}

type story struct {
	*world
	before map[string]string
	events map[kb.JobID]int
	asked  []string
}

func play(t *testing.T, text string) string {
	s := &story{world: newWorld(t), before: map[string]string{}, events: map[kb.JobID]int{}}
	var out strings.Builder
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		command, isCommand := strings.CutPrefix(line, "> ")
		switch {
		case !isCommand && !strings.HasPrefix(line, "  "):
			fmt.Fprintln(&out, line) // a remark, or a blank line
		case isCommand:
			fmt.Fprintln(&out, line)
			s.happen(strings.Fields(command))
			for _, said := range s.follow() {
				fmt.Fprintln(&out, "  "+said)
			}
			s.startedAnew()
		}
	}
	return out.String()
}

// happen changes the cluster as one line says.
func (s *story) happen(f []string) {
	s.t.Helper()
	rest := func(i int) string { return strings.Join(f[min(i, len(f)):], " ") }
	id := func(text string) uint32 {
		n, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			s.t.Fatal(err)
		}
		return uint32(n)
	}
	switch f[0] {
	case "node":
		for name := range strings.SplitSeq(f[1], ",") {
			s.node(name, f[2], rest(3))
		}
	case "boot":
		for name := range strings.SplitSeq(f[1], ",") {
			k := kernels[slices.IndexFunc(kernels, func(k kb.Kernel) bool { return k.Profile == f[2] })]
			token := rest(3)
			if token == "with" {
				token = s.nodes[name].Pending.Token
			}
			s.boot(name, k, strings.TrimSuffix(token, "-"))
		}
	case "silent":
		for name := range strings.SplitSeq(f[1], ",") {
			s.silence(name)
		}
	case "report":
		for name := range strings.SplitSeq(f[1], ",") {
			kind := kb.FailureKind("")
			if f[2] == "failed" {
				kind = kb.FailureKind(f[3])
			}
			s.report(name, kb.Progress(f[2]), kind, rest(4))
		}
	case "slurmd":
		for name := range strings.SplitSeq(f[1], ",") {
			s.slurmd(name)
		}
	case "job": // id, or id:reference
		number, reference, named := strings.Cut(f[1], ":")
		s.job(id(number), f[2], rest(4) == "reboot", strings.Split(f[3], ",")...)
		if j := s.slurm.Jobs[id(number)]; named {
			j.Reference = reference
			s.slurm.Jobs[j.ID] = j
		}
	case "over":
		delete(s.slurm.Jobs, id(f[1]))
	case "requeued": // with restart count 1 and Slurm's pause before it
		delete(s.slurm.Jobs, id(f[1]))
		s.slurm.Queue = []kb.SlurmJob{{ID: id(f[1]), Reference: f[1], Restart: 1, State: "PENDING", Reason: "BeginTime", Reboot: true}}
	case "waits": // for nodes, no longer for its time
		s.slurm.Queue[0].Reason = "Resources"
	case "ensure":
		ref, err := s.catalog.Resolve(kb.Ref{Profile: f[2]})
		if err != nil {
			s.t.Fatal(err)
		}
		a := s.ensure(id(f[1]), ref, strings.Split(f[3], ",")...)
		a.Submitted = rest(4) != "unseen"
	case "wait":
		d, err := time.ParseDuration(f[1])
		if err != nil {
			s.t.Fatal(err)
		}
		s.now = s.now.Add(d)
	case "queue":
		s.slurm.Queue, s.slurm.Commented = nil, true
		for _, entry := range f[1:] { // reference:profile:nodes[:reservation]
			part := strings.Split(entry, ":")
			j := kb.SlurmJob{ID: id(strings.Split(part[0], "_")[0]), Reference: part[0], State: "PENDING", Reason: "Resources", User: "alice", NodeCount: id(part[2]),
				Priority: uint64(1000 - len(s.slurm.Queue)), Partition: "main", Demand: &kb.SlurmDemand{}}
			if len(part) > 3 {
				j.Reservation = part[3]
			}
			if part[1] != "" {
				j.Reboot, j.AdminComment = true, "kernel-broker: "+part[1]+" requested"
			}
			s.slurm.Queue = append(s.slurm.Queue, j)
		}
	case "ending":
		a := s.agents[f[1]]
		a.Ending, a.EndingSince = id(f[2]), s.now.Add(-time.Millisecond)
		s.agents[f[1]] = a
	case "reservations":
		s.slurm.Reservations = nil
		for _, entry := range f[1:] { // job:node,node, and the job is tied to them
			job, nodes, _ := strings.Cut(entry, ":")
			for i := range s.slurm.Queue {
				if s.slurm.Queue[i].Reference == job {
					s.slurm.Queue[i].Reservation = ReservationName(job)
				}
			}
			s.slurm.Reservations = append(s.slurm.Reservations, kb.SlurmReservation{Name: ReservationName(job), Job: job, Nodes: strings.Split(nodes, ",")})
		}
	case "counted":
		s.catalog.counted[f[1]] = true
	case "quarantine":
		ref, err := kb.ParseRef(f[1])
		if err != nil {
			s.t.Fatal(err)
		}
		s.catalog.quarantined[ref] = true
	case "attempts":
		for _, a := range s.allocs {
			a.BootAttempts = id(f[1])
		}
	case "rule": // name node never or no-return, reboot or reset, once
		s.rules = append(s.rules, kb.HardwareRule{Name: f[1], Node: f[2], Kexec: kb.RuleKexec(f[3]), By: kb.Way(f[4]), Once: rest(5) == "once", Reason: "its network adapter hangs"})
	case "resets":
		s.config.CanReset = true
	case "reset": // was done
		s.reset(f[1])
	default:
		s.t.Fatalf("nobody knows %q", f[0])
	}
}

// follow decides until it rests and says what changed, in order.
func (s *story) follow() []string {
	s.t.Helper()
	var said []string
	acted := map[string]bool{}
	for range 10 {
		s.now = s.now.Add(10 * time.Millisecond)
		out := s.decide()
		for _, a := range slices.SortedFunc(maps.Values(s.all()), func(a, b *kb.Allocation) int { return a.ID.Compare(b.ID) }) {
			for _, e := range a.Timeline[min(s.events[a.ID], len(a.Timeline)):] {
				said = append(said, strings.TrimSpace(fmt.Sprintf("job %d: %s %s %s", a.ID.Job, e.Node, e.Event, e.Detail)))
			}
			s.events[a.ID] = len(a.Timeline)
		}
		for _, name := range slices.Sorted(maps.Keys(s.nodes)) {
			if now := describe(s.nodes[name]); now != s.before[name] {
				s.before[name] = now
				said = append(said, name+" "+now)
			}
		}
		for _, t := range out.Tries {
			said = append(said, strings.TrimSpace(fmt.Sprintf("ledger: %s of %s on %s, success %v %s", t.Way, t.Kernel, t.Node, t.OK, t.Cause)))
		}
		for _, name := range out.UsedRules {
			said = append(said, "rule "+name+" is used up")
		}
		for _, name := range slices.Sorted(maps.Keys(out.Kept)) {
			said = append(said, fmt.Sprintf("epilog on %s: kept %v", name, out.Kept[name]))
		}
		for _, a := range out.Actions {
			if text := describeAction(a); !acted[text] {
				acted[text] = true
				// What is asked for as long as it is not seen is told once.
				if !slices.Contains(s.asked, text) {
					said = append(said, "do: "+text)
				}
			}
			if a.Kind == CommentJob {
				s.done(a)
			}
		}
		if len(out.Nodes)+len(out.Allocations) == 0 {
			s.asked = slices.Collect(maps.Keys(acted))
			return said
		}
	}
	s.t.Fatal("the records do not come to rest")
	return nil
}

func (s *story) all() map[kb.JobID]*kb.Allocation {
	all := maps.Clone(s.allocs)
	for _, a := range s.closed {
		all[a.ID] = a
	}
	return all
}

// describe is a node's record in a line.
func describe(n *kb.Node) string {
	text := fmt.Sprintf("is %s, runs %s, wants %s", n.Progress(), word(n.Running.Ref.String()), word(n.Desired.String()))
	if n.Pending != nil {
		text += fmt.Sprintf(", %s %s with %s", n.Pending.Progress, n.Pending.Kernel.Ref(), n.Pending.Token)
	}
	if n.Failure != nil {
		text += fmt.Sprintf(", %s's fault: %s", n.Failure.Kind, n.Failure.Cause)
	}
	if n.Slurm.Awaited.Awaits() {
		text += ", slurm waits"
	}
	if n.SlurmdStart > 0 {
		text += fmt.Sprintf(", slurmd start %d", n.SlurmdStart)
	}
	if n.KeptFor != "" {
		text += ", kept for " + n.KeptFor
	}
	if drained(n) {
		text += ", drained"
	}
	return text
}

func word(text string) string {
	if text == "" {
		return "?"
	}
	return text
}

func describeAction(a Action) string {
	text := string(a.Kind)
	for _, part := range []string{a.Node, strings.Join(a.Nodes, ","), a.Reference, a.Fault.Token, a.Text} {
		if part != "" {
			text += " " + part
		}
	}
	return text
}

// startedAnew: a broker that reads these records and has no agent yet changes
// none of them.
func (s *story) startedAnew() {
	s.t.Helper()
	in := s.input()
	in.Agents = map[string]Agent{}
	for name := range s.nodes {
		in.Agents[name] = Agent{Since: s.now}
	}
	if out := Decide(in); len(out.Nodes)+len(out.Allocations) > 0 {
		for _, n := range out.Nodes {
			s.t.Errorf("after a restart %s changes from\n%s to\n%s", n.Name, describe(s.nodes[n.Name]), describe(n))
		}
		for _, a := range out.Allocations {
			s.t.Errorf("after a restart job %s changes to %s", a.ID, a.Phase)
		}
	}
}
