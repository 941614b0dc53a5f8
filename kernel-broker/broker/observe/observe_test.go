// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/scontrol"
)

var at = time.Date(2026, 11, 28, 6, 12, 20, 0, time.UTC)

// row is what scontrol prints of a node.
func row(state, reason, by string) kb.SlurmNode {
	line := "NodeName=n1 State=" + state
	if reason != "" {
		line += " Reason=" + reason
		if by != "" {
			line += " [" + by + "@2026-11-28T06:12:16]"
		}
	}
	n, ok := scontrol.ParseNode(line)
	if !ok {
		panic(line)
	}
	return n
}

func facts(change func(*Facts)) Facts {
	f := Facts{At: at, Refused: func(time.Time) bool { return false }}
	if change != nil {
		change(&f)
	}
	return f
}

const arm = "kprof: mitgcm@3 for job 7"

// Each case is what slurmctld shows one poll after another, and what the last one means.
func TestBoots(t *testing.T) {
	type want struct {
		awaited   kb.BootPhase
		whose     kb.BootOwner
		requested kb.BootPhase
		by        kb.BootOwner
	}
	const (
		broker, job, administrator         = kb.OwnerBroker, kb.OwnerJob, kb.OwnerAdministrator
		poweringUp, issued, forgotten, req = kb.BootPoweringUp, kb.BootIssued, kb.BootForgotten, kb.BootRequested
	)
	again := kb.SlurmSide{Requested: kb.SlurmBoot{Phase: kb.BootAsked, Owner: broker, Since: at.Add(-3 * time.Second)}, Restore: &kb.OutOfService{Reason: "bad DIMM"}}
	asked := kb.SlurmSide{Requested: kb.SlurmBoot{Phase: kb.BootAsked, Owner: broker, Since: at.Add(-3 * time.Second)}}
	for name, c := range map[string]struct {
		was  kb.SlurmSide
		rows []kb.SlurmNode
		f    func(*Facts)
		want want
	}{
		"nothing":                        {rows: []kb.SlurmNode{row("IDLE", "", "")}},
		"a job's boot":                   {rows: []kb.SlurmNode{row("ALLOCATED+POWERING_UP", "", "")}, want: want{awaited: poweringUp, whose: job}},
		"a job's, as 26.05 shows it":     {rows: []kb.SlurmNode{row("ALLOCATED+REBOOT_ISSUED+POWERING_UP", "", "")}, want: want{awaited: poweringUp, whose: job}},
		"with the return after it":       {was: asked, rows: []kb.SlurmNode{row("ALLOCATED+POWERING_UP+DRAIN+REBOOT_REQUESTED", "Reboot ASAP", "root")}, want: want{poweringUp, job, req, broker}},
		"asked and not seen yet":         {was: asked, rows: []kb.SlurmNode{row("ALLOCATED+POWERING_UP", "", "")}, want: want{poweringUp, job, kb.BootAsked, broker}},
		"asked and never seen":           {was: asked, rows: []kb.SlurmNode{row("ALLOCATED", "", "")}, f: func(f *Facts) { f.At = at.Add(time.Minute) }},
		"a broker that forgot, by words": {rows: []kb.SlurmNode{row("ALLOCATED+DRAIN+REBOOT_REQUESTED", arm, "root")}, want: want{requested: req, by: broker}},
		"an administrator's":             {rows: []kb.SlurmNode{row("IDLE+DRAIN+REBOOT_REQUESTED", "kernel update", "root")}, want: want{requested: req, by: administrator}},
		"an administrator's, issued":     {rows: []kb.SlurmNode{row("DOWN+DRAIN+REBOOT_ISSUED", "kernel update : reboot issued", "slurm")}, want: want{awaited: issued, whose: administrator}},
		"ours, issued":                   {was: asked, rows: []kb.SlurmNode{row("ALLOCATED+DRAIN+REBOOT_REQUESTED", "Reboot ASAP", "root"), row("DOWN+DRAIN+REBOOT_ISSUED", "Reboot ASAP : reboot issued", "slurm")}, want: want{awaited: issued, whose: broker}},
		"ours, drained on top, issued":   {was: asked, rows: []kb.SlurmNode{row("ALLOCATED+DRAIN+REBOOT_REQUESTED", "bad DIMM", "root"), row("DOWN+DRAIN+REBOOT_ISSUED", "bad DIMM : reboot issued", "slurm")}, want: want{awaited: issued, whose: broker}},
		"ours, answered early":           {rows: []kb.SlurmNode{row("DOWN+DRAIN+REBOOT_ISSUED", arm+" : reboot issued", "slurm"), row("IDLE+REBOOT_ISSUED", "", "")}, want: want{awaited: forgotten, whose: broker}},
		"a job's, answered early":        {rows: []kb.SlurmNode{row("ALLOCATED+REBOOT_ISSUED+POWERING_UP", "", ""), row("ALLOCATED+REBOOT_ISSUED", "", "")}, want: want{awaited: forgotten, whose: job}},
		"ours over":                      {rows: []kb.SlurmNode{row("DOWN+DRAIN+REBOOT_ISSUED", arm+" : reboot issued", "slurm"), row("IDLE", "", "")}},
		"slurmctld forgot that it was issued, with the job's end": {rows: []kb.SlurmNode{row("DOWN+DRAIN+REBOOT_ISSUED", arm+" : reboot issued", "slurm"), row("ALLOCATED+DRAIN+REBOOT_REQUESTED", "Reboot ASAP", "root")},
			f: func(f *Facts) { f.JobBack = true }, want: want{requested: req, by: broker}},
		"an administrator's after ours was issued": {rows: []kb.SlurmNode{row("DOWN+DRAIN+REBOOT_ISSUED", arm+" : reboot issued", "slurm"), row("IDLE+DRAIN+REBOOT_REQUESTED", "Reboot ASAP", "root")},
			want: want{requested: req, by: administrator}},
		"another one is issued": {rows: []kb.SlurmNode{row("DOWN+DRAIN+REBOOT_ISSUED", arm+" : reboot issued", "slurm"), row("DOWN+DRAIN+REBOOT_ISSUED", "kernel update : reboot issued", "slurm")},
			want: want{awaited: issued, whose: administrator}},
		"ours, drained since it was issued": {rows: []kb.SlurmNode{row("DOWN+DRAIN+REBOOT_ISSUED", arm+" : reboot issued", "slurm"), row("DOWN+DRAIN+REBOOT_ISSUED", "bad DIMM", "root")},
			want: want{awaited: issued, whose: broker}},
		"ours, with a drain that is set again": {was: again, rows: []kb.SlurmNode{row("DOWN+DRAIN+REBOOT_ISSUED", "bad DIMM : reboot issued", "slurm"), row("DOWN+DRAIN+REBOOT_ISSUED", "bad DIMM : reboot issued", "slurm")},
			want: want{awaited: issued, whose: broker}},
		"a return that is over, and the job that left": {rows: []kb.SlurmNode{row("ALLOCATED+DRAIN+REBOOT_REQUESTED", "bad DIMM", "root")},
			f: func(f *Facts) { f.Returned, f.LastJobBack = true, true }, want: want{requested: req, by: broker}},
		"a return that is over, a reason after it": {rows: []kb.SlurmNode{row("DOWN+DRAIN+REBOOT_ISSUED", "bad DIMM", "root")},
			f: func(f *Facts) { f.Returned = true }, want: want{awaited: issued, whose: broker}},
		"slurmctld restarted and shows nothing": {rows: []kb.SlurmNode{row("DOWN+DRAIN+REBOOT_ISSUED", arm+" : reboot issued", "slurm"), row("UNKNOWN", "", "")}, want: want{whose: broker}},
	} {
		s, f := c.was, facts(c.f)
		for _, r := range c.rows {
			s = Node(s, r, f)
		}
		if got := (want{s.Awaited.Phase, s.Awaited.Owner, s.Requested.Phase, s.Requested.Owner}); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func TestService(t *testing.T) {
	gate := func(f *Facts) { f.Refused = func(time.Time) bool { return true } }
	drained := kb.ServiceDrained
	for name, c := range map[string]struct {
		rows   []kb.SlurmNode
		f      func(*Facts)
		state  kb.ServiceState
		author kb.ServiceAuthor
	}{
		"in service":                         {rows: []kb.SlurmNode{row("IDLE", "", "")}},
		"ours":                               {rows: []kb.SlurmNode{row("ALLOCATED+DRAIN+REBOOT_REQUESTED", arm, "root")}, state: drained, author: kb.AuthorReturn},
		"a failure":                          {rows: []kb.SlurmNode{row("IDLE+DRAIN", "kernel-broker: mitgcm@3: no boot", "root")}, state: drained, author: kb.AuthorFailure},
		"an administrator's":                 {rows: []kb.SlurmNode{row("IDLE+DRAIN", "bad DIMM", "root")}, state: drained, author: kb.AuthorAdministrator},
		"to fail":                            {rows: []kb.SlurmNode{row("IDLE+FAIL", "bad DIMM", "root")}, state: kb.ServiceFailing, author: kb.AuthorAdministrator},
		"slurmctld's own":                    {rows: []kb.SlurmNode{row("DOWN", "Not responding", "slurm")}, state: kb.ServiceDown, author: kb.AuthorSlurmctld},
		"a boot without a reason":            {rows: []kb.SlurmNode{row("IDLE+DRAIN+REBOOT_REQUESTED", "Reboot ASAP", "root")}, state: drained, author: kb.AuthorSlurmctld},
		"withdrawn":                          {rows: []kb.SlurmNode{row("IDLE+DRAIN", "bad DIMM", "root"), row("IDLE", "bad DIMM", "root")}, author: kb.AuthorWithdrawn},
		"withdrawn, and a boot is requested": {rows: []kb.SlurmNode{row("IDLE", "bad DIMM", "root"), row("IDLE+DRAIN+REBOOT_REQUESTED", "bad DIMM", "root")}, state: drained, author: kb.AuthorWithdrawn},
		"withdrawn, and that boot is issued": {rows: []kb.SlurmNode{row("IDLE", "bad DIMM", "root"), row("DOWN+DRAIN+REBOOT_ISSUED", "bad DIMM", "slurm")}, state: drained, author: kb.AuthorWithdrawn},
		"said again by another":              {rows: []kb.SlurmNode{row("IDLE", "bad DIMM", "root"), row("IDLE+DRAIN", "bad DIMM", "alice")}, state: drained, author: kb.AuthorAdministrator},
		"the gate":                           {rows: []kb.SlurmNode{row("IDLE+DRAIN", kb.ReasonProlog, "root")}, f: gate, state: drained, author: kb.AuthorGate},
		"a prolog of the site's":             {rows: []kb.SlurmNode{row("IDLE+DRAIN", kb.ReasonProlog, "root")}, state: drained, author: kb.AuthorAdministrator},
		"the kernel":                         {rows: []kb.SlurmNode{row("IDLE+DRAIN+INVALID_REG", "Low RealMemory", "slurm")}, f: func(f *Facts) { f.OnProfile = true }, state: drained, author: kb.AuthorKernel},
		"the same on stock":                  {rows: []kb.SlurmNode{row("IDLE+DRAIN+INVALID_REG", "Low RealMemory", "slurm")}, state: drained, author: kb.AuthorSlurmctld},
		"down for its boot alone":            {rows: []kb.SlurmNode{row("DOWN+DRAIN+REBOOT_ISSUED", "bad DIMM : reboot issued", "slurm")}, state: drained, author: kb.AuthorAdministrator},
		"down, its job was thrown off":       {rows: []kb.SlurmNode{row("DOWN+DRAIN+REBOOT_ISSUED", "bad DIMM : reboot issued", "slurm")}, f: func(f *Facts) { f.ThrownOff = true }, state: kb.ServiceDown, author: kb.AuthorAdministrator},
		"down after an early answer":         {rows: []kb.SlurmNode{row("IDLE+REBOOT_ISSUED", "", ""), row("DOWN+REBOOT_ISSUED", "bad DIMM", "root")}, state: kb.ServiceDown, author: kb.AuthorAdministrator},
		"set down, then booted":              {rows: []kb.SlurmNode{row("DOWN", "bad DIMM", "root"), row("DOWN+REBOOT_ISSUED", "bad DIMM : reboot issued", "slurm")}, state: kb.ServiceDown, author: kb.AuthorAdministrator},
	} {
		s, f := kb.SlurmSide{}, facts(c.f)
		for _, r := range c.rows {
			s = Node(s, r, f)
		}
		if s.Service.State != c.state || s.Service.Author != c.author {
			t.Errorf("%s: %q by %q, want %q by %q", name, s.Service.State, s.Service.Author, c.state, c.author)
		}
	}
}

// The same line, read again, is no news: passes are more frequent than polls.
func TestTheSameLineIsNoNews(t *testing.T) {
	states := []string{"IDLE", "ALLOCATED", "DOWN", "UNKNOWN"}
	flags := []string{"", "+DRAIN", "+FAIL", "+INVALID_REG"}
	boots := []string{"", "+POWERING_UP", "+REBOOT_REQUESTED", "+REBOOT_ISSUED", "+REBOOT_ISSUED+POWERING_UP", "+POWERING_UP+REBOOT_REQUESTED"}
	reasons := []string{"", arm, arm + " : reboot issued", "bad DIMM", "bad DIMM : reboot issued", "Reboot ASAP", "Not responding", kb.ReasonProlog, "kernel-broker: a failure", "Low RealMemory"}
	rapid.Check(t, func(t *rapid.T) {
		f := facts(func(f *Facts) {
			f.JobBack, f.Returned, f.LastJobBack = rapid.Bool().Draw(t, "job back"), rapid.Bool().Draw(t, "returned"), rapid.Bool().Draw(t, "last job back")
			f.ThrownOff, f.OnProfile = rapid.Bool().Draw(t, "thrown off"), rapid.Bool().Draw(t, "on a profile's kernel")
			refused := rapid.Bool().Draw(t, "refused")
			f.Refused = func(time.Time) bool { return refused }
		})
		s := kb.SlurmSide{}
		for range rapid.IntRange(1, 6).Draw(t, "polls") {
			r := row(rapid.SampledFrom(states).Draw(t, "state")+rapid.SampledFrom(flags).Draw(t, "flag")+rapid.SampledFrom(boots).Draw(t, "boot"),
				rapid.SampledFrom(reasons).Draw(t, "reason"), rapid.SampledFrom([]string{"root", "slurm"}).Draw(t, "by"))
			s = Node(s, r, f)
			if again := Node(s, r, f); again != s {
				t.Fatalf("%+v, and again %+v", s, again)
			}
			if s.Awaited.Awaits() != r.Waiting() {
				t.Fatalf("waits for %+v, and slurmctld shows %q", s.Awaited, r.FullState())
			}
		}
	})
}
