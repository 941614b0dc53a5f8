// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/plan"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
)

// weighed is a store that counts what is written.
type weighed struct {
	store.Store
	writes, bytes atomic.Int64
}

func (w *weighed) Commit(ctx context.Context, writes ...store.Write) (int64, error) {
	for _, one := range writes {
		w.writes.Add(1)
		w.bytes.Add(int64(len(one.Value)))
	}
	return w.Store.Commit(ctx, writes...)
}

// counted is a slurmctld that counts how often it is polled.
type counted struct {
	*fakeSlurm
	polls atomic.Int64
}

func (c *counted) View(ctx context.Context, comments bool) (kb.SlurmView, error) {
	c.polls.Add(1)
	return c.fakeSlurm.View(ctx, comments)
}

// paced is a controller with the pauses that a site has, in a time of its own.
type paced struct {
	*fixture
	store *weighed
	slurm *counted
}

func inBubble(t *testing.T, check func(p *paced)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		p := &paced{fixture: f, store: &weighed{Store: f.store}, slurm: &counted{fakeSlurm: f.slurm}}
		c, err := New(t.Context(), Options{Store: p.store, Catalog: f.catalog, Slurm: p.slurm, Reset: f, Plan: plan.Defaults(),
			PollBusy: 250 * time.Millisecond, PollIdle: 2 * time.Second, QuarantineAfter: 2, KeepJobs: 100, Runs: f.runs,
			Log: slog.New(slog.NewTextHandler(&f.log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		f.c = c
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 2)
		go func() { done <- c.Run(ctx) }()
		go func() { done <- c.Publish(ctx, noSnapshot) }()
		time.Sleep(10 * time.Second)
		check(p)
		cancel()
		for range 2 {
			if err := <-done; err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, kb.ErrUnavailable) {
				t.Error(err)
			}
		}
	})
}

// polledDuring returns how often slurmctld was polled in a while.
func (p *paced) polledDuring(while func()) int64 {
	synctest.Wait()
	p.slurm.polls.Store(0)
	while()
	synctest.Wait()
	return p.slurm.polls.Load()
}

// large is the most that a node may say of its hardware, and another one each time.
func large(i int) kb.Inventory {
	inventory := kb.Inventory{Architecture: "x86_64"}
	for d := range 256 {
		inventory.Drivers = append(inventory.Drivers, fmt.Sprintf("d%d_%d", i, d)+strings.Repeat("x", 50))
	}
	return inventory
}

// A node that comes again and again with another boot and other hardware is
// heard a few times; the store holds what is for all.
func TestBootsWithoutEnd(t *testing.T) {
	inBubble(t, func(p *paced) {
		k := simKernel(kb.StockProfile)
		boot := func(i int) kb.Boot {
			return kb.Boot{BootID: fmt.Sprintf("%s%06d", bootOne[:16], i), BuildID: k.BuildID, Release: k.Release}
		}
		p.store.bytes.Store(0)
		refused := 0
		for i := range 200 {
			s, err := p.c.Attach("n1", boot(i), large(i), true)
			time.Sleep(20 * time.Millisecond)
			var later *kb.RetryableError
			switch {
			case err == nil:
				s.Detach()
			case errors.As(err, &later) && errors.Is(err, kb.ErrExhausted) && later.Wait > 0 && later.Wait <= 10*time.Second:
				refused++
			default:
				t.Fatal(err)
			}
		}
		most := attachRate.Burst + int(attachRate.PerSecond*(200*20*time.Millisecond).Seconds()) + 1
		if refused < 200-most {
			t.Errorf("%d of 200 were refused", refused)
		}
		if bytes := p.store.bytes.Load(); bytes > int64(most)*24<<10 {
			t.Errorf("%d bytes were written for 200 streams", bytes)
		}
		t.Logf("%d of 200 streams refused, %d bytes written", refused, p.store.bytes.Load())
		// Another node notices nothing, and this one is heard again.
		p.attach("n2", kb.StockProfile, "", bootTwo).wished(t, "another node", func(d kb.DesiredState) bool { return d.Attested })
		time.Sleep(10 * time.Second)
		s, err := p.c.Attach("n1", boot(1000), large(1000), true)
		if err != nil {
			t.Fatal(err)
		}
		s.Detach()
	})
}

// What is known already costs nothing: every node of a cluster comes again when
// a broker starts, and one whose network is bad many times.
func TestTheSameHelloCostsNothing(t *testing.T) {
	inBubble(t, func(p *paced) {
		hello := func() {
			k := simKernel(kb.StockProfile)
			s, err := p.c.Attach("n1", kb.Boot{BootID: bootOne, BuildID: k.BuildID, Release: k.Release, BootedAt: time.Now()}, large(1), true)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			s.Detach()
		}
		hello()
		synctest.Wait()
		p.store.writes.Store(0)
		for range 500 {
			hello()
		}
		if writes := p.store.writes.Load(); writes != 0 {
			t.Errorf("%d records were written", writes)
		}
	})
}

// One node cannot have slurmctld polled without a pause, whatever it says.
func TestPollsOfOneNode(t *testing.T) {
	inBubble(t, func(p *paced) {
		agent := p.attach("n1", kb.StockProfile, "", bootOne)
		agent.wished(t, "stock", func(d kb.DesiredState) bool { return d.Attested })
		time.Sleep(10 * time.Second)
		const while = 20 * time.Second
		idle := p.polledDuring(func() { time.Sleep(while) })
		for name, say := range map[string]func(i int){
			"a job that is not on it":      func(int) { agent.Ending(1, 4711) },
			"a slurmd that comes and goes": func(i int) { agent.Slurmd(kb.SlurmdReport{Running: i%2 == 0}) },
			"runs that there are not":      func(i int) { agent.RunReport(uint64(i), kb.RunReport{State: kb.RunNodeLooking}, nil) },
		} {
			polls := p.polledDuring(func() {
				for i := range int(while / (20 * time.Millisecond)) { // a node's pace
					say(i)
					time.Sleep(20 * time.Millisecond)
				}
			})
			t.Logf("%s: %d polls in %v, %d idle", name, polls, while, idle)
			most := idle + int64(pollRate.Burst) + int64(while.Seconds()*pollRate.PerSecond)
			if polls > most {
				t.Errorf("%s: %d polls in %v, more than %d", name, polls, while, most)
			}
			time.Sleep(time.Minute)
		}
		p.c.mu.Lock()
		if kept := len(agent.agent.Runs); kept != 0 {
			t.Errorf("words on %d runs that there are not are kept", kept)
		}
		p.c.mu.Unlock()
	})
}

// A node that boots says so, and is gone before the broker decides again.
func TestReportsOutlastTheAgent(t *testing.T) {
	f := newFixture(t)
	c, err := New(t.Context(), Options{Store: f.store, Catalog: f.catalog, Slurm: f.slurm, Reset: f, Plan: plan.Defaults(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	pending := kb.Pending{Generation: 3, Token: "t", Progress: kb.ProgressLoading, Since: time.Now()}
	c.records.nodes["n1"] = &kb.Node{Name: "n1", Boot: kb.Boot{BootID: bootOne}, Generation: 3, Pending: &pending}
	s, err := c.Attach("n1", kb.Boot{BootID: bootOne}, kb.Inventory{}, false)
	if err != nil {
		t.Fatal(err)
	}
	s.Report(kb.SwitchReport{Generation: 3, Progress: kb.ProgressBooting})
	s.Detach()
	s.Report(kb.SwitchReport{Generation: 3, Progress: kb.ProgressFailed}) // a stream that is over counts no more
	if err := c.pass(t.Context()); err != nil {
		t.Fatal(err)
	}
	if p := c.records.nodes["n1"].Pending; p == nil || p.Progress != kb.ProgressBooting || len(c.unread) != 0 {
		t.Errorf("pending %+v, unread %v", p, c.unread)
	}
}

// A heartbeat is answered once what came before it is committed.
func TestHeartbeatIsAReceipt(t *testing.T) {
	f := newFixture(t)
	c, err := New(t.Context(), Options{Store: f.store, Catalog: f.catalog, Slurm: f.slurm, Reset: f, Plan: plan.Defaults(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	s, err := c.Attach("n1", kb.Boot{BootID: bootOne}, kb.Inventory{}, false)
	if err != nil {
		t.Fatal(err)
	}
	answered := func() (numbers []uint64) {
		for {
			select {
			case m := <-s.out:
				if m.Heartbeat != 0 {
					numbers = append(numbers, m.Heartbeat)
				}
			default:
				return numbers
			}
		}
	}
	s.Report(kb.SwitchReport{Generation: 3, Progress: kb.ProgressLoaded})
	s.Heartbeat(9)
	if before := answered(); len(before) > 0 {
		t.Errorf("answered before the commit: %v", before)
	}
	if err := c.pass(t.Context()); err != nil {
		t.Fatal(err)
	}
	if after := answered(); !slices.Equal(after, []uint64{9}) {
		t.Errorf("answered after the commit: %v", after)
	}
}

// The last words of a boot and the next one come to the same pass: the kernel panicked, and was not reset while it loaded.
func TestReportsBeforeTheNextBoot(t *testing.T) {
	f := newFixture(t)
	c, err := New(t.Context(), Options{Store: f.store, Catalog: f.catalog, Slurm: f.slurm, Reset: f, Plan: plan.Defaults(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	mitgcm := simKernel("mitgcm")
	pending := kb.Pending{Kernel: mitgcm, Generation: 3, Token: "t", Progress: kb.ProgressLoading, Since: time.Now(), PrevBootID: bootOne}
	c.records.nodes["n1"] = &kb.Node{Name: "n1", Boot: kb.Boot{BootID: bootOne}, Generation: 3, Desired: mitgcm.Ref(), Pending: &pending}
	s, err := c.Attach("n1", kb.Boot{BootID: bootOne}, kb.Inventory{}, false)
	if err != nil {
		t.Fatal(err)
	}
	s.Report(kb.SwitchReport{Generation: 3, Progress: kb.ProgressBooting})
	s.Detach()
	if _, err := c.Attach("n1", kb.Boot{BootID: "boot-of-n1-0002", BuildID: simKernel("stock").BuildID, Release: "6.1.0-stock"}, kb.Inventory{Architecture: "x86_64"}, false); err != nil {
		t.Fatal(err)
	}
	if err := c.pass(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := c.records.nodes["n1"]; len(n.Faults) != 1 {
		t.Errorf("faults %v, pending %+v", n.Faults, n.Pending)
	}
}

// What a node reports while nothing can be committed does not fill the memory.
func TestReportsAreBounded(t *testing.T) {
	f := newFixture(t)
	c, err := New(t.Context(), Options{Store: f.store, Catalog: f.catalog, Slurm: f.slurm, Reset: f, Plan: plan.Defaults(),
		Log: slog.New(slog.NewTextHandler(&f.log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	s, err := c.Attach("n1", kb.Boot{BootID: bootOne}, kb.Inventory{}, false)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 1000 {
		s.Report(kb.SwitchReport{Generation: uint64(i), Progress: kb.ProgressLoading, Detail: strings.Repeat("x", 1000)})
	}
	if kept := c.unread["n1"].reports; len(kept) != maxReports || kept[0].Generation != 1000-maxReports || kept[maxReports-1].Generation != 999 || cap(kept) > 4*maxReports {
		t.Errorf("%d are kept, from %d on, in room for %d", len(kept), kept[0].Generation, cap(kept))
	}
	if err := c.pass(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(c.unread) != 0 || !f.log.has("reports=936") {
		t.Errorf("%d are left, and the log says nothing of those that were dropped", len(c.unread))
	}
}
