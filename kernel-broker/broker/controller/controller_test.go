// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
	"github.com/kernelbroker/kernelbroker/tests/support/memstore"
)

const bootOne, bootTwo = "11111111-1111-1111-1111-111111111111", "22222222-2222-2222-2222-222222222222"

// begun is a job on n1 that was accepted and whose agent was told to boot.
func begun(t *testing.T, tune ...func(*Options)) (*fixture, *fakeAgent, kb.DesiredState) {
	t.Helper()
	f := newFixture(t)
	for _, change := range tune {
		f.tuneOptions = change
	}
	f.start()
	agent := f.attach("n1", kb.StockProfile, "", bootOne)
	agent.wished(t, "stock is attested", func(d kb.DesiredState) bool { return d.Attested && d.SlurmdAllowed })
	f.slurm.job(7, "CONFIGURING", "n1")
	f.slurm.node("n1", "ALLOCATED+POWERING_UP", "")
	if _, err := f.c.Ensure(t.Context(), request(7)); err != nil {
		t.Fatal(err)
	}
	d := agent.wished(t, "a kernel to boot", func(d kb.DesiredState) bool { return d.Kernel != nil })
	return f, agent, d
}

func request(job uint32) Request {
	return Request{ID: kb.JobID{Job: job}, Ref: kb.Ref{Profile: "mitgcm"}, Nodes: []string{"n1"}}
}

func TestJobThereAndBack(t *testing.T) {
	f, agent, d := begun(t)
	if d.Kernel.Ref().String() != "mitgcm@1" || kb.ValidateToken(d.Token) != nil || d.SlurmdAllowed || d.Jobs[0] != 7 {
		t.Errorf("wish %+v", d)
	}
	until(t, "the return is armed", func() bool { return f.slurm.seen("arm n1") > 0 })
	progress, err := f.c.Ensure(t.Context(), request(7)) // the hook joins
	if err != nil {
		t.Fatal(err)
	}
	agent.Report(kb.SwitchReport{Generation: d.Generation, Progress: kb.ProgressBooting})
	until(t, "the last word is recorded", func() bool {
		v, err := f.c.Node("n1")
		return err == nil && v.Node.Progress() == "booting"
	})
	agent.Detach()
	agent = f.attach("n1", "mitgcm", d.Token, bootTwo)
	agent.wished(t, "the kernel is attested", func(d kb.DesiredState) bool {
		return d.Attested && d.SlurmdAllowed && d.Running.Profile == "mitgcm" && d.Kernel == nil
	})
	f.slurm.node("n1", "ALLOCATED+DRAIN+REBOOT_REQUESTED", "kprof: mitgcm@1 for job 7")
	last := JobProgress{}
	for p := range progress {
		if last = p; p.Phase == kb.PhaseReady {
			break
		}
	}
	if last.Phase != kb.PhaseReady || last.Ready != 1 || last.Total != 1 {
		t.Errorf("progress ends with %+v", last)
	}
	f.slurm.job(7, "RUNNING", "n1")
	until(t, "the user is told", func() bool { return f.slurm.seen("comment 7 kernel-broker: runs on mitgcm@1, kernel 6.1-mitgcm") > 0 })
	f.slurm.end(7)
	f.slurm.node("n1", "DOWN+DRAIN+REBOOT_ISSUED", "kprof: mitgcm@1 for job 7 : reboot issued")
	back := agent.wished(t, "stock to boot", func(d kb.DesiredState) bool { return d.Kernel != nil && d.Kernel.Profile == kb.StockProfile })
	agent.Report(kb.SwitchReport{Generation: back.Generation, Progress: kb.ProgressBooting})
	agent.Detach()
	agent = f.attach("n1", kb.StockProfile, back.Token, bootOne+"3")
	agent.wished(t, "stock again", func(d kb.DesiredState) bool { return d.Attested && d.SlurmdAllowed && len(d.Jobs) == 0 })
	f.slurm.node("n1", "IDLE", "")
	until(t, "the allocation is done", func() bool { return f.phase(7) == kb.PhaseDone })
	a, err := f.c.Job(t.Context(), 7, nil)
	if err != nil || a.Before["n1"].Ref.Profile != kb.StockProfile || a.During["n1"].Ref.Profile != "mitgcm" || a.After["n1"].Ref.Profile != kb.StockProfile {
		t.Errorf("proofs %+v %+v %+v, %v", a.Before, a.During, a.After, err)
	}
	if v, err := f.c.Node("n1"); err != nil || v.Node.Kexecs != 2 || !v.Connected {
		t.Errorf("node %+v, %v", v.Node, err)
	}
}

// Who reads the log sees each change of state: what was is compared with what
// became of it.
func TestChangesAreLogged(t *testing.T) {
	f, agent, d := begun(t)
	agent.Report(kb.SwitchReport{Generation: d.Generation, Progress: kb.ProgressBooting})
	for _, change := range []string{
		`msg="allocation changed" job=7.0 from=accepted to=switching`,
		`msg="node changed" node=n1 job=7.0 from=steady to=loading desired=mitgcm@1 running=stock@1`,
		`msg="node changed" node=n1 job=7.0 from=loading to=booting desired=mitgcm@1`,
	} {
		until(t, change, func() bool { return f.log.has(change) })
	}
}

// Who asks is told of a switch when it has ended, with the whole timeline.
func TestSwitchedIsTold(t *testing.T) {
	told := make(chan *kb.Allocation, 1)
	_, agent, d := begun(t, func(o *Options) { o.Switched = func(a *kb.Allocation) { told <- a } })
	agent.Report(kb.SwitchReport{Generation: d.Generation, Progress: kb.ProgressFailed, Kind: kb.FailureKernel, Detail: "no driver"})
	a := <-told
	if last := a.Timeline[len(a.Timeline)-1]; a.ID.Job != 7 || a.Phase != kb.PhaseFailed || kb.Phase(last.Event) != kb.PhaseFailed {
		t.Errorf("%+v", a)
	}
}

// A switch that fails is a warning, which says what becomes of the job.
func TestFailedSwitchIsAWarning(t *testing.T) {
	f, agent, d := begun(t)
	agent.Report(kb.SwitchReport{Generation: d.Generation, Progress: kb.ProgressFailed, Kind: kb.FailureNode, Detail: "no space on the disk"})
	const line = `level=WARN msg="allocation changed" job=7.0 from=switching to=failed kernel=mitgcm@1 job_is=requeued reason="kernel mitgcm@1 on node n1: no space on the disk"`
	until(t, "the warning", func() bool { return f.log.has(line) })
}

func TestEnsureJoinsAndRefuses(t *testing.T) {
	f, _, _ := begun(t)
	other := request(7)
	other.Ref = kb.Ref{Profile: "lammps"}
	if _, err := f.c.Ensure(t.Context(), other); !errors.Is(err, kb.ErrExists) {
		t.Errorf("another profile for the same run: %v", err)
	}
	f.slurm.job(8, "RUNNING", "n1")
	f.slurm.job(9, "PENDING")
	f.slurm.job(10, "CONFIGURING", "n2")
	for name, c := range map[string]struct {
		r    Request
		want error
		held bool
	}{
		"a job that nobody knows":  {request(99), kb.ErrNotFound, false},
		"a job that waits":         {request(9), kb.ErrNotFound, false},
		"another run of the job":   {Request{ID: kb.JobID{Job: 10, Restart: 3}, Ref: kb.Ref{Profile: "mitgcm"}, Nodes: []string{"n2"}}, kb.ErrNotFound, false},
		"nodes that are not its":   {Request{ID: kb.JobID{Job: 10}, Ref: kb.Ref{Profile: "mitgcm"}, Nodes: []string{"n1"}}, kb.ErrInvalid, false},
		"stock":                    {Request{ID: kb.JobID{Job: 10}, Ref: kb.Ref{Profile: "stock"}, Nodes: []string{"n2"}}, kb.ErrInvalid, false},
		"a node that is shared":    {request(8), kb.ErrFailedPrecondition, true},
		"a profile nobody has":     {Request{ID: kb.JobID{Job: 10}, Ref: kb.Ref{Profile: "mitgmc"}, Nodes: []string{"n2"}}, kb.ErrNotFound, true},
		"a version that is not":    {Request{ID: kb.JobID{Job: 10}, Ref: kb.Ref{Profile: "mitgcm", Version: 9}, Nodes: []string{"n2"}}, kb.ErrNotFound, true},
		"the same with two nodes":  {Request{ID: kb.JobID{Job: 10}, Ref: kb.Ref{Profile: "mitgcm"}, Nodes: []string{"n2", "n2"}}, kb.ErrInvalid, false},
		"no nodes but those of it": {Request{ID: kb.JobID{Job: 10}, Ref: kb.Ref{Profile: "mitgcm"}}, kb.ErrInvalid, false},
	} {
		t.Run(name, func(t *testing.T) {
			f.slurm.job(8, "RUNNING", "n1")
			f.slurm.job(10, "CONFIGURING", "n2")
			holds := f.slurm.seen("hold ")
			if _, err := f.c.Ensure(t.Context(), c.r); !errors.Is(err, c.want) {
				t.Errorf("Ensure = %v, want %v", err, c.want)
			}
			if held := f.slurm.seen("hold ") > holds; held != c.held {
				t.Errorf("held %v, want %v", held, c.held)
			}
		})
	}
}

// A job that was held stays its user's to release, whatever slurmctld makes of it
// while its prolog ends.
func TestHoldsAreGivenBack(t *testing.T) {
	f, _, _ := begun(t)
	f.slurm.job(8, "CONFIGURING", "n2")
	if _, err := f.c.Ensure(t.Context(), Request{ID: kb.JobID{Job: 8}, Ref: kb.Ref{Profile: "mitgmc"}, Nodes: []string{"n2"}}); !errors.Is(err, kb.ErrNotFound) {
		t.Fatal(err)
	}
	f.slurm.mu.Lock()
	f.slurm.queue = []kb.SlurmJob{{ID: 8, Reference: "8", Restart: 1, State: "PENDING", Reason: "JobHeldAdmin"}}
	f.slurm.mu.Unlock()
	until(t, "it is given back", func() bool { return f.slurm.seen("uhold 8") > 0 })
}

// The hook of a job that is to be held ends its prolog as soon as it is: each
// moment more is one in which slurmctld may forget who held it.
func TestHeldIsToldAtOnce(t *testing.T) {
	f, agent, d := begun(t)
	f.slurm.mu.Lock()
	f.slurm.slow = true
	f.slurm.mu.Unlock()
	agent.Report(kb.SwitchReport{Generation: d.Generation, Progress: kb.ProgressFailed, Kind: kb.FailureKernel, Detail: "no"})
	until(t, "the hook may end", func() bool {
		p, err := f.c.progress(t.Context(), kb.JobID{Job: 7})
		return err == nil && p.Phase == kb.PhaseFailed
	})
	if f.slurm.seen("hold 7") == 0 {
		t.Error("slurmctld would requeue it first")
	}
}

// A slurmctld that was killed has forgotten that it gave the job its nodes, and
// gives it some again, for the same run. What is over by then begins anew.
func TestSameRunOnceMore(t *testing.T) {
	f, agent, _ := begun(t)
	f.slurm.job(7, "PENDING")
	f.slurm.node("n1", "IDLE", "")
	until(t, "the job is gone", func() bool { return f.phase(7) == kb.PhaseDone })
	if _, err := f.c.Ensure(t.Context(), request(7)); err != nil {
		t.Errorf("a late retry: %v", err)
	}
	if phase := f.phase(7); phase != kb.PhaseDone {
		t.Errorf("a late retry made the phase %s", phase)
	}
	f.slurm.node("n1", "ALLOCATED+POWERING_UP", "")
	f.slurm.job(7, "CONFIGURING", "n1")
	if _, err := f.c.Ensure(t.Context(), request(7)); err != nil {
		t.Fatal(err)
	}
	until(t, "the switch begins anew", func() bool { return f.phase(7) == kb.PhaseSwitching })
	agent.wished(t, "a kernel to boot", func(d kb.DesiredState) bool { return d.Kernel != nil && d.Jobs[0] == 7 })
	a, err := f.c.Job(t.Context(), 7, nil)
	if err != nil {
		t.Fatal(err)
	}
	accepted := 0
	for _, e := range a.Timeline {
		if e.Event == string(kb.PhaseAccepted) {
			accepted++
		}
	}
	if accepted != 2 {
		t.Errorf("the timeline tells of %d begins: %v", accepted, a.Timeline)
	}
}

// A retry may name the nodes in another order; it is the same request.
func TestEnsureIsTheSameInAnyOrder(t *testing.T) {
	f := newFixture(t)
	f.start()
	f.attach("n1", kb.StockProfile, "", bootOne)
	f.attach("n2", kb.StockProfile, "", bootTwo)
	f.slurm.job(7, "CONFIGURING", "n1", "n2")
	r := request(7)
	r.Nodes = []string{"n1", "n2"}
	if _, err := f.c.Ensure(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	r.Nodes = []string{"n2", "n1"}
	if _, err := f.c.Ensure(t.Context(), r); err != nil {
		t.Errorf("Ensure = %v", err)
	}
}

func TestBrokerRestartsInMidSwitch(t *testing.T) {
	f, agent, d := begun(t)
	agent.Report(kb.SwitchReport{Generation: d.Generation, Progress: kb.ProgressBooting})
	until(t, "booting", func() bool {
		v, err := f.c.Node("n1")
		return err == nil && v.Node.Progress() == "booting"
	})
	f.restart()
	time.Sleep(50 * time.Millisecond) // several passes without any agent
	v, err := f.c.Node("n1")
	if err != nil || v.Node.Progress() != "booting" || v.Node.Pending.Token != d.Token {
		t.Fatalf("node %+v, %v", v.Node, err)
	}
	agent = f.attach("n1", "mitgcm", d.Token, bootTwo)
	agent.wished(t, "the kernel is attested", func(d kb.DesiredState) bool { return d.Attested && d.Running.Profile == "mitgcm" })
	if _, err := f.c.Ensure(t.Context(), request(7)); err != nil {
		t.Errorf("the hook cannot join: %v", err)
	}
}

// A broker that was away longer than any limit fails nobody at its first look.
func TestRestartAfterALongTime(t *testing.T) {
	f, agent, d := begun(t)
	agent.Report(kb.SwitchReport{Generation: d.Generation, Progress: kb.ProgressBooting})
	until(t, "booting", func() bool {
		v, err := f.c.Node("n1")
		return err == nil && v.Node.Progress() == "booting"
	})
	f.stop()
	f.age("n1", 5*time.Minute)
	resets := make(chan string, 10)
	f.reset = func(node string) error { resets <- node; return nil }
	f.start()
	time.Sleep(100 * time.Millisecond)
	if v, err := f.c.Node("n1"); err != nil || v.Node.Progress() != "booting" || len(resets) > 0 {
		t.Errorf("node is %s with %d resets, %v", v.Node.Progress(), len(resets), err)
	}
}

// age makes what is pending on a node older in the store.
func (f *fixture) age(node string, by time.Duration) {
	f.t.Helper()
	f.change(node, func(n *kb.Node) { n.Pending.Since = n.Pending.Since.Add(-by) })
}

// change alters a node's record while no broker runs.
func (f *fixture) change(node string, how func(*kb.Node)) {
	f.t.Helper()
	r := records{store: f.store}
	if err := r.load(f.t.Context()); err != nil {
		f.t.Fatal(err)
	}
	n := r.nodes[node]
	how(n)
	if err := r.commit(f.t.Context(), []*kb.Node{n}, nil); err != nil {
		f.t.Fatal(err)
	}
}

// pending is the boot that a node's record waits for.
func (f *fixture) pending(node string) *kb.Pending {
	v, err := f.c.Node(node)
	if err != nil {
		return nil
	}
	return v.Node.Pending
}

// Somebody else wrote a record: nothing is overwritten, and the broker goes on
// from what is there.
func TestCommitConflict(t *testing.T) {
	f, agent, d := begun(t)
	var written *kb.Node
	until(t, "a write beside the broker", func() bool {
		r := records{store: f.store}
		if err := r.load(t.Context()); err != nil {
			return false
		}
		written = r.nodes["n1"]
		written.Kexecs = 41
		return r.commit(t.Context(), []*kb.Node{written}, nil) == nil
	})
	agent.Report(kb.SwitchReport{Generation: d.Generation, Progress: kb.ProgressBooting}) // said once, and not lost
	until(t, "the broker took it over", func() bool {
		v, err := f.c.Node("n1")
		return err == nil && v.Node.Kexecs == 41 && v.Node.Progress() == "booting"
	})
	if v, err := f.c.Node("n1"); err != nil || v.Node.Pending == nil || v.Node.Pending.Token != d.Token {
		t.Errorf("the boot is lost: %+v, %v", v.Node, err)
	}
}

func TestStoreIsAway(t *testing.T) {
	for name, when := range map[string]memstore.Moment{"not applied": memstore.Before, "applied, unanswered": memstore.After} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.start()
			agent := f.attach("n1", kb.StockProfile, "", bootOne)
			f.slurm.job(7, "CONFIGURING", "n1")
			f.slurm.node("n1", "ALLOCATED+POWERING_UP", "")
			agent.wished(t, "all that comes without the hook", func(d kb.DesiredState) bool { return d.Attested && !d.NoBootAwaited })
			// The hook's commits and those of the passes, as they come; his is the first.
			f.store.FailCommits(4, when)
			tries := 1
			for ; ; tries++ {
				_, err := f.c.Ensure(t.Context(), request(7))
				if err == nil {
					break
				}
				if !errors.Is(err, kb.ErrUnavailable) || tries > 4 {
					t.Fatalf("try %d of the hook: %v", tries, err)
				}
			}
			if tries == 1 {
				t.Error("the hook was told of a record that is not known to be one")
			}
			d := agent.wished(t, "a kernel", func(d kb.DesiredState) bool { return d.Kernel != nil })
			rec, err := f.store.Get(t.Context(), nodeKey("n1"))
			if err != nil || !strings.Contains(string(rec.Value), d.Token) {
				t.Errorf("an agent was told of a token that is not recorded: %v", err)
			}
		})
	}
}

// While nothing can be committed, nothing is done and nobody is told.
func TestNothingIsDoneThatIsNotRecorded(t *testing.T) {
	f := newFixture(t)
	f.start()
	agent := f.attach("n1", kb.StockProfile, "", bootOne)
	before := agent.wished(t, "all that comes without a job", func(d kb.DesiredState) bool { return d.Attested && d.SlurmdAllowed })
	f.store.FailCommits(1<<20, memstore.Before)
	f.slurm.job(7, "CONFIGURING", "n1")
	f.slurm.node("n1", "ALLOCATED+POWERING_UP", "")
	if _, err := f.c.Ensure(t.Context(), request(7)); !errors.Is(err, kb.ErrUnavailable) {
		t.Errorf("Ensure = %v", err)
	}
	time.Sleep(100 * time.Millisecond)
	if d, _ := agent.wish(); d.Generation != before.Generation {
		t.Errorf("the agent was told %+v", d)
	}
	if calls := f.slurm.seen(""); calls > 0 {
		t.Errorf("%d commands were run", calls)
	}
}

func TestNewNeedsItsRecords(t *testing.T) {
	f := newFixture(t)
	f.store.FailReads(1)
	_, err := New(t.Context(), Options{Store: f.store, Catalog: f.catalog, Slurm: f.slurm})
	if !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("New = %v", err)
	}
	if _, err := f.store.Commit(t.Context(), store.Write{Key: nodeKey("n1"), Value: []byte("{")}); err != nil {
		t.Fatal(err)
	}
	if _, err := New(t.Context(), Options{Store: f.store, Catalog: f.catalog, Slurm: f.slurm}); err == nil || !strings.Contains(err.Error(), `record "nodes/n1"`) {
		t.Errorf("New = %v", err)
	}
}

func TestProgressEndsWithItsCaller(t *testing.T) {
	f, _, _ := begun(t)
	ctx, cancel := context.WithCancel(t.Context())
	progress, err := f.c.Ensure(ctx, request(7))
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	for range progress {
	}
	until(t, "nobody watches", func() bool {
		f.c.mu.Lock()
		defer f.c.mu.Unlock()
		return len(f.c.watchers[kb.JobID{Job: 7}]) <= 1 // begun's own
	})
	if f.phase(7) == kb.PhaseFailed || f.phase(7) == "" {
		t.Errorf("the switch ended with its caller: %s", f.phase(7))
	}
}

// A job that is staged out does not share its nodes with the next one.
func TestNodesOfAJobThatIsStagedOut(t *testing.T) {
	for state, shared := range map[string]bool{"RUNNING": true, "STAGE_OUT": false} {
		view := kb.SlurmView{Jobs: map[uint32]kb.SlurmJob{6: {ID: 6, Reference: "6", State: state, Nodes: []string{"n1"}}}}
		if err := alone(view, kb.JobID{Job: 7}, []string{"n1"}); (err != nil) != shared {
			t.Errorf("%s: %v", state, err)
		}
	}
}
