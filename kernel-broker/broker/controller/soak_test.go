// SPDX-License-Identifier: Apache-2.0

//go:build soak

package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/catalog"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/plan"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/record"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store/etcdserver"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store/etcdstore"
)

// A soak is 5,000 jobs, or as many as KB_SOAK_JOBS says, of 1 to soakNodes nodes through a controller on a real etcd, with a slurmctld and agents of the test.
// As many records are kept as the first soakKept jobs leave.
const (
	soakNodes = 1000
	soakKept  = 400
	soakFirst = 500
	// soakBoot is the time of a boot: nodes come back together, as after a real one.
	soakBoot = 500 * time.Millisecond
	// soakGrowth is how much more memory and store the end may take than the state after soakFirst jobs.
	soakGrowth = 1.25
)

func soakJobs(t *testing.T) int {
	text, set := os.LookupEnv("KB_SOAK_JOBS")
	if !set {
		return 5000
	}
	jobs, err := strconv.Atoi(text)
	if err != nil || jobs <= soakFirst {
		t.Fatalf("KB_SOAK_JOBS=%s is no number above %d", text, soakFirst)
	}
	return jobs
}

// soakState is what the broker takes after some jobs, in bytes.
type soakState struct {
	Jobs     int    `json:"jobs"`
	Nodes    int    `json:"nodes"`
	Heap     uint64 `json:"heap_bytes"`
	Records  int    `json:"records"`
	Database int64  `json:"database_bytes"`
	OnDisk   int64  `json:"on_disk_bytes"`
}

type soak struct {
	t     *testing.T
	dir   string
	slurm *fakeSlurm
	c     *Controller
	// program resets a node, as the site's own does.
	program map[string]chan struct{}
}

func newSoak(t *testing.T) *soak {
	quiet := slog.New(slog.DiscardHandler)
	s := &soak{t: t, dir: t.TempDir(), slurm: newFakeSlurm(), program: map[string]chan struct{}{}}
	for i := range soakNodes {
		s.program[soakNode(i)] = make(chan struct{}, 1)
	}
	server, err := etcdserver.Start(t.Context(), etcdserver.Config{Dir: s.dir, Logger: quiet, Tend: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	kept, err := etcdstore.Open(t.Context(), etcdstore.Config{Endpoints: []string{server.Endpoint()}, Cluster: "soak", Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = kept.Close() })
	profiles := catalog.New(catalog.Options{Store: kept, Log: quiet})
	for _, p := range simProfiles() {
		p.Application, p.Description = "test", "test"
		if _, _, err := profiles.Apply(t.Context(), "apply-"+p.Name, p); err != nil {
			t.Fatal(err)
		}
	}
	config := plan.Defaults()
	config.RegisterDelay, config.CanReset = 0, true
	s.c, err = New(t.Context(), Options{Store: kept, Catalog: profiles, Slurm: s.slurm, Plan: config, Log: quiet,
		PollBusy: 50 * time.Millisecond, PollIdle: 50 * time.Millisecond, QuarantineAfter: 1000, KeepJobs: soakKept, KeepJobBytes: etcdserver.DefaultQuota / 2})
	if err != nil {
		t.Fatal(err)
	}
	s.c.begin = s.c.begin.Add(-reconnectGrace)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = s.c.Run(ctx) })
	running.Go(func() { _ = s.c.Publish(ctx, noSnapshot) })
	running.Go(func() { s.slurmctld(ctx) })
	for i := range soakNodes {
		s.slurm.node(soakNode(i), "IDLE", "")
		running.Go(func() { s.agent(ctx, soakNode(i)) })
	}
	t.Cleanup(func() { cancel(); running.Wait() })
	until(t, "every agent", func() bool { return len(s.c.Nodes()) == soakNodes })
	return s
}

func soakNode(i int) string { return fmt.Sprintf("n%d", i+1) }

// agent boots its node into what it is told to.
func (s *soak) agent(ctx context.Context, node string) {
	profile, token := kb.StockProfile, ""
	for boot := 0; ctx.Err() == nil; boot++ {
		k := simKernel(profile)
		id := fmt.Sprintf("%08x-0000-4000-8000-%012x", len(node), boot*soakNodes+len(node))
		session, err := s.c.Attach(node, kb.Boot{BootID: id, BuildID: k.BuildID, Release: k.Release, Token: token}, kb.Inventory{Architecture: "x86_64"}, true)
		if err != nil {
			s.t.Error(err)
			return
		}
		profile, token = s.obey(ctx, session, node, profile)
		session.Detach()
	}
}

// obey follows a session until the node is to boot.
func (s *soak) obey(ctx context.Context, session *Session, node, runs string) (profile, token string) {
	again := time.NewTicker(2 * time.Second) // slurmd registers from time to time
	defer again.Stop()
	allowed := false
	for {
		select {
		case <-ctx.Done():
			return "", ""
		case <-again.C:
			if allowed {
				s.registered(node, runs)
			}
		case <-s.program[node]:
			time.Sleep(soakBoot)
			return kb.StockProfile, ""
		case m := <-session.Messages():
			d := m.Desired
			if d == nil {
				continue
			}
			allowed = d.SlurmdAllowed
			session.Slurmd(kb.SlurmdReport{Generation: d.Generation, Running: allowed})
			if d.Kernel != nil {
				session.Report(kb.SwitchReport{Generation: d.Generation, Progress: kb.ProgressBooting})
				time.Sleep(soakBoot)
				return d.Kernel.Profile, d.Token
			}
			if allowed {
				s.registered(node, runs)
			}
		}
	}
}

// registered is slurmctld's answer to a boot: the wait is over, and a node on stock is free.
func (s *soak) registered(node, profile string) {
	s.slurm.mu.Lock()
	defer s.slurm.mu.Unlock()
	n := s.slurm.nodes[node]
	switch {
	case profile != kb.StockProfile:
		n.Flags = slices.DeleteFunc(slices.Clone(n.Flags), func(flag string) bool { return flag == "POWERING_UP" })
	case n.State == "DOWN":
		n.State, n.Flags, n.Reason = "IDLE", nil, ""
	}
	s.slurm.nodes[node] = n
}

// wave runs jobs side by side on as many nodes as there are, and returns the next job's id.
func (s *soak) wave(id uint32, last int, random *rand.Rand) (next uint32, nodes int) {
	jobs := map[uint32][]string{}
	for nodes < soakNodes && int(id) <= last {
		size := min(int(math.Exp(random.Float64()*math.Log(soakNodes))), soakNodes-nodes)
		names := make([]string, max(size, 1))
		for i := range names {
			names[i] = soakNode(nodes + i)
			s.slurm.node(names[i], "ALLOCATED+POWERING_UP", "")
		}
		nodes += len(names)
		s.slurm.job(id, "CONFIGURING", names...)
		jobs[id] = names
		id++
	}
	phases := func(want kb.Phase) func() bool {
		return func() bool {
			for id := range jobs {
				a, err := s.c.Job(s.t.Context(), id, nil)
				if err != nil || a.Phase != want {
					return false
				}
			}
			return true
		}
	}
	ctx, cancel := context.WithCancel(s.t.Context())
	for id, names := range jobs {
		progress, err := s.c.Ensure(ctx, Request{ID: kb.JobID{Job: id}, Ref: kb.Ref{Profile: "lammps"}, Nodes: names})
		if err != nil {
			s.t.Fatalf("job %d on %d nodes: %v", id, len(names), err)
		}
		go func() {
			for range progress {
			}
		}()
	}
	s.until(jobs, "kernels", phases(kb.PhaseReady))
	s.until(jobs, "armed returns", func() bool { return s.every(func(n kb.SlurmNode) bool { return n.Free() || n.Armed() }) })
	cancel()
	for id, names := range jobs {
		s.slurm.job(id, "RUNNING", names...)
	}
	time.Sleep(150 * time.Millisecond) // the poll sees it
	for id, names := range jobs {
		s.slurm.end(id)
		s.idle(names)
	}
	s.until(jobs, "returns", phases(kb.PhaseDone))
	s.until(jobs, "idle nodes", func() bool { return s.every(func(n kb.SlurmNode) bool { return n.State == "IDLE" }) })
	s.quiet()
	s.slurm.mu.Lock()
	s.slurm.calls = nil
	s.slurm.comments = map[string]string{}
	s.slurm.mu.Unlock()
	// The janitor's round, which comes each ten minutes.
	if err := jobKind.Prune(s.t.Context(), s.c.records.store, &s.c.records.jobIndex, s.c.o.KeepJobs); err != nil {
		s.t.Fatal(err)
	}
	return id, nodes
}

// slurmctld begins the boots that it was asked for when no job has the node.
func (s *soak) slurmctld(ctx context.Context) {
	for ; ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
		var begun []string
		s.slurm.mu.Lock()
		for name, n := range s.slurm.nodes {
			if n.Free() && slices.Contains(n.Flags, "REBOOT_REQUESTED") {
				n.State, n.Flags, n.Reason = "DOWN", []string{"DRAIN", "REBOOT_ISSUED"}, n.Reason+" : reboot issued"
				s.slurm.nodes[name] = n
				begun = append(begun, name)
			}
		}
		s.slurm.mu.Unlock()
		if len(begun) == 0 {
			continue
		}
		others, err := s.c.NoteReboot(ctx, begun, true)
		if err != nil && ctx.Err() == nil {
			s.t.Errorf("reboot of %d nodes: %v", len(begun), err)
		}
		for _, name := range others {
			s.program[name] <- struct{}{}
		}
	}
}

// idle takes a job off its nodes.
func (s *soak) idle(names []string) {
	s.slurm.mu.Lock()
	defer s.slurm.mu.Unlock()
	for _, name := range names {
		n := s.slurm.nodes[name]
		n.State = "IDLE"
		s.slurm.nodes[name] = n
	}
}

// quiet waits until the broker says no more to slurmctld: what it says late of a job would meet the next one's nodes.
func (s *soak) quiet() {
	said := func() int {
		s.slurm.mu.Lock()
		defer s.slurm.mu.Unlock()
		return len(s.slurm.calls)
	}
	for before := -1; before != said(); time.Sleep(500 * time.Millisecond) {
		before = said()
	}
}

// every reports whether something is so of each node that slurmctld has.
func (s *soak) every(is func(kb.SlurmNode) bool) bool {
	s.slurm.mu.Lock()
	defer s.slurm.mu.Unlock()
	for _, n := range s.slurm.nodes {
		if !is(n) {
			return false
		}
	}
	return true
}

// until waits for what must come, and says of one job and one node what they wait for where it does not.
func (s *soak) until(jobs map[uint32][]string, what string, is func() bool) {
	s.t.Helper()
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if is() {
			return
		}
	}
	for id, names := range jobs {
		a, err := s.c.Job(s.t.Context(), id, nil)
		if err == nil && a.Phase == kb.PhaseDone {
			continue
		}
		s.t.Logf("job %d: phase %s, reason %q, %v", id, a.Phase, a.Reason, err)
		for _, name := range names {
			if n, err := s.c.Node(name); err != nil || !n.Node.Steady() || n.Node.Slurm.Awaited.Awaits() || !n.Node.Desired.IsStock() {
				s.t.Logf("node %s: %+v, connected %v, %v; in Slurm %+v", name, n.Node, n.Connected, err, s.slurm.nodes[name])
				break
			}
		}
		break
	}
	s.t.Fatalf("did not come: %s", what)
}

func (s *soak) state(jobs, nodes int) soakState {
	time.Sleep(25 * time.Second) // etcd drops history, and its room goes back to the disk
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	state := soakState{Jobs: jobs, Nodes: nodes, Heap: m.HeapAlloc}
	state.Records = len(s.c.records.jobIndex.Newest(2*soakKept, func(record.Entry) bool { return true }))
	_ = filepath.WalkDir(s.dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return nil
		}
		info, err := entry.Info()
		if err != nil {
			return nil
		}
		state.OnDisk += info.Size()
		if strings.HasSuffix(path, "/snap/db") {
			state.Database = info.Size()
		}
		return nil
	})
	return state
}

// The broker's memory and its store are bounded by what is kept, and not by what has been.
func TestSoak(t *testing.T) {
	s, all := newSoak(t), soakJobs(t)
	random := rand.New(rand.NewPCG(1, 2))
	var states []soakState
	nodes, mark := 0, soakFirst
	for id := uint32(1); int(id) <= all; {
		next, had := s.wave(id, all, random)
		id, nodes = next, nodes+had
		if done := int(id) - 1; done >= mark {
			states, mark = append(states, s.state(done, nodes)), done+soakFirst
			t.Logf("%+v", states[len(states)-1])
		}
	}
	states = append(states, s.state(all, nodes))
	print := tabwriter.NewWriter(os.Stdout, 0, 4, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(print, "jobs\tnodes\theap MB\trecords\tdatabase MB\ton disk MB\t")
	for _, state := range states {
		fmt.Fprintf(print, "%d\t%d\t%.1f\t%d\t%.1f\t%.1f\t\n", state.Jobs, state.Nodes, float64(state.Heap)/1e6, state.Records, float64(state.Database)/1e6, float64(state.OnDisk)/1e6)
	}
	_ = print.Flush()
	data, err := json.Marshal(states)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println(string(data))
	first, last := states[0], states[len(states)-1]
	for what, pair := range map[string][2]float64{"heap": {float64(first.Heap), float64(last.Heap)}, "database": {float64(first.Database), float64(last.Database)}, "disk": {float64(first.OnDisk), float64(last.OnDisk)}} {
		if pair[1] > pair[0]*soakGrowth {
			t.Errorf("%s: %.1f MB after %d jobs, %.1f MB after %d", what, pair[0]/1e6, first.Jobs, pair[1]/1e6, last.Jobs)
		}
	}
}
