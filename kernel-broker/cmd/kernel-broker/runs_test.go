// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/link"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/runs"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/catalog"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/controller"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/plan"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/server"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/artifact"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
	"github.com/kernelbroker/kernelbroker/tests/support/memstore"
)

// oneJob is slurmctld with job 7 on two nodes, which asked for profiling. Only
// what runs need is there.
type oneJob struct {
	controller.Slurm
	mu    sync.Mutex
	state string
}

func (s *oneJob) set(state string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state = state
}

func (s *oneJob) View(context.Context, bool) (kb.SlurmView, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	view := kb.SlurmView{At: time.Now(), Jobs: map[uint32]kb.SlurmJob{}, Nodes: map[string]kb.SlurmNode{}}
	for _, name := range []string{"n1", "n2"} {
		view.Nodes[name] = kb.SlurmNode{Name: name, State: "ALLOCATED"}
	}
	if s.state != "" {
		view.Jobs[7] = kb.SlurmJob{ID: 7, Reference: "7", State: s.state, UID: 1000, User: "alice", Nodes: []string{"n1", "n2"}, NodeCount: 2}
	}
	return view, nil
}

func (*oneJob) Cgroup(context.Context, uint32) (string, error) { return "", nil }

func (*oneJob) AdminComment(context.Context, uint32) (string, error) {
	return "kernel-broker: stock requested; profiling=io", nil
}

// cluster is a broker over TCP, and its agents' keepers.
type cluster struct {
	t       *testing.T
	dir     string
	kept    *memstore.Store
	files   *artifact.Store
	slurm   *oneJob
	address string
	control *controller.Controller
	stop    func()
}

func newCluster(t *testing.T) *cluster {
	c := &cluster{t: t, dir: t.TempDir(), kept: memstore.New(), slurm: &oneJob{state: "CONFIGURING"}, address: "127.0.0.1:0"}
	var err error
	if c.files, err = artifact.OpenStore(filepath.Join(c.dir, "artifacts"), artifact.StoreOptions{Log: slog.New(slog.DiscardHandler)}); err != nil {
		t.Fatal(err)
	}
	c.start()
	t.Cleanup(func() {
		c.stop()
		if err := c.kept.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// start a broker that knows what the store knows, at the same address.
// alone is a broker that nobody else follows.
type alone struct{}

func (alone) Epoch() uint64 { return 1 }
func (alone) MayAct() error { return nil }

func (c *cluster) start() {
	c.t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	profiles := catalog.New(catalog.Options{Store: c.kept, Log: quiet, HasArtifact: c.files.Has})
	limits := controller.DefaultRunLimits()
	control, err := controller.New(c.t.Context(), controller.Options{Store: c.kept, Catalog: profiles, Slurm: c.slurm, Plan: plan.Defaults(),
		PollBusy: 5 * time.Millisecond, PollIdle: 10 * time.Millisecond, QuarantineAfter: 2, KeepJobs: 10, Runs: limits, HasArtifact: c.files.Has, Log: quiet})
	if err != nil {
		c.t.Fatal(err)
	}
	serving := server.NewServer(server.Options{Catalog: profiles, Artifacts: c.files, Log: quiet})
	api.RegisterNodeServiceServer(serving, server.NewNodeService(control, alone{}))
	api.RegisterAllocationServiceServer(serving, server.NewAllocationService(control))
	settings := defaults()
	api.RegisterRunServiceServer(serving, runService(settings, control, c.files, nil))
	listener, err := net.Listen("tcp", c.address)
	if err != nil {
		c.t.Fatal(err)
	}
	c.address, c.control = listener.Addr().String(), control
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() { _ = control.Run(ctx) })
	group.Go(func() {
		if err := serving.Serve(listener); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			c.t.Error(err)
		}
	})
	c.stop = func() {
		serving.Stop()
		cancel()
		group.Wait()
	}
}

// observation is a job being observed by nobody.
type observation struct {
	request runs.Request
	node    string
	ended   chan struct{}
	once    sync.Once
	err     error
}

func (o *observation) Ended() <-chan struct{} { return o.ended }

func (o *observation) Stop(string) {
	o.once.Do(func() {
		result := profiling.Result{Format: profiling.Format, Job: o.request.Job.Job, Nodes: []profiling.Node{{Name: o.node, JobNS: 1000, SystemNS: 10}},
			Refused: []profiling.Refusal{{Node: o.node, Part: strings.Repeat("long enough for several messages ", 10000)}}}
		content, err := result.JSON()
		o.err = errors.Join(err, os.WriteFile(filepath.Join(o.request.Folder, kb.ResultFile), content, 0o600))
		close(o.ended)
	})
}

func (*observation) Watch(context.Context, func([]byte)) {}

func (o *observation) Result(context.Context) (profiling.Result, error) {
	return profiling.Result{}, o.err
}

// node is an agent's keeper with a link of its own.
type node struct {
	c            *cluster
	name         string
	observations chan *observation
}

func (*node) Check([]string) []error { return nil }

func (n *node) Begin(r runs.Request) (runs.Session, error) {
	o := &observation{request: r, node: n.name, ended: make(chan struct{})}
	n.observations <- o
	return o, nil
}

// agent connects a node's keeper.
func (c *cluster) agent(name string) *node {
	c.t.Helper()
	n := &node{c: c, name: name, observations: make(chan *observation, 9)}
	groups := filepath.Join(c.dir, name, "cgroup")
	if err := os.MkdirAll(filepath.Join(groups, "job_7"), 0o755); err != nil {
		c.t.Fatal(err)
	}
	quiet := slog.New(slog.DiscardHandler)
	var keeper *runs.Keeper
	stream, err := link.New(link.Options{
		Broker: c.address, Log: quiet, Snapshot: func(string) error { return nil },
		Hello: func() kb.Hello {
			return kb.Hello{Node: name, Boot: kb.Boot{BootID: "8ad0c5a4-0000-4000-8000-00000000000" + name[1:], BuildID: "abcdabcdabcdabcd", Release: "6.1"}}
		},
		Runs: func(wishes []kb.DesiredRun) { keeper.Desire(wishes) },
	})
	if err != nil {
		c.t.Fatal(err)
	}
	keeper = runs.New(runs.Options{Node: name, Collectors: n, Broker: stream, Dir: filepath.Join(c.dir, name, "runs"), Cgroups: []string{groups}, Log: quiet})
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() { stream.Run(ctx) })
	c.t.Cleanup(func() {
		keeper.Close()
		cancel()
		group.Wait()
		if err := stream.Close(); err != nil {
			c.t.Error(err)
		}
	})
	return n
}

// populate puts a process into the job's cgroup on the node, or takes it away.
func (n *node) populate(alive int) {
	n.c.t.Helper()
	path := filepath.Join(n.c.dir, n.name, "cgroup", "job_7", "cgroup.events")
	if err := os.WriteFile(path, fmt.Appendf(nil, "populated %d\n", alive), 0o644); err != nil {
		n.c.t.Fatal(err)
	}
}

func (c *cluster) until(what string, is func(r *kb.Run) bool) {
	c.t.Helper()
	var last *kb.Run
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		r, err := c.control.ProfilingRun(context.Background(), 1)
		if err == nil && is(r) {
			return
		}
		last = r
	}
	c.t.Fatalf("did not come: %s; the run is %+v", what, last)
}

// The whole way of a run over the network: request, wish, observation, a broker that is
// killed in the middle, upload in many messages, record.
func TestRunOverTheNetwork(t *testing.T) {
	c := newCluster(t)
	nodes := []*node{c.agent("n1"), c.agent("n2")}
	r, err := c.control.BeginRun(t.Context(), kb.JobID{Job: 7})
	if err != nil || r == nil || r.ID != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	c.until("both stand by", func(r *kb.Run) bool {
		return r.Nodes[0].State == kb.RunNodeReady && r.Nodes[1].State == kb.RunNodeReady
	})
	c.slurm.set("RUNNING")
	for _, n := range nodes {
		n.populate(1)
	}
	c.until("both observation", func(r *kb.Run) bool {
		return r.Nodes[0].State == kb.RunNodeLooking && r.Nodes[1].State == kb.RunNodeLooking
	})
	c.stop()
	for _, n := range nodes { // the job ends while there is no broker
		n.populate(0)
		o := <-n.observations
		if o.request.UID != 1000 {
			t.Errorf("request %+v", o.request)
		}
		o.Stop("")
	}
	c.slurm.set("")
	c.start()
	c.until("both have delivered", func(r *kb.Run) bool { return r.State == kb.RunComplete })
	done, err := c.control.ProfilingRun(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range done.Nodes {
		file, err := c.files.Stat(n.Files[0].Digest)
		if err != nil || file.Size != n.Files[0].Size || file.Size < 300_000 {
			t.Errorf("node %s: %d bytes, %v", n.Name, file.Size, err)
		}
	}
	files, err := controller.RunFiles(t.Context(), c.kept)
	if err != nil || len(files) != 2 {
		t.Errorf("files of runs %v, %v", files, err)
	}
}
