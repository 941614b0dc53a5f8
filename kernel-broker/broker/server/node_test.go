// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/api/convert"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/catalog"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/controller"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/plan"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/server"
	"github.com/kernelbroker/kernelbroker/tests/support/memstore"
)

// oneJob is a slurmctld with nodes n1 and n2 and a job 7 on n1.
type oneJob struct {
	mu   sync.Mutex
	node kb.SlurmNode
	gone bool
}

func (s *oneJob) View(context.Context, bool) (kb.SlurmView, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	view := kb.SlurmView{At: time.Now(), Jobs: map[uint32]kb.SlurmJob{}, Commented: true,
		Nodes: map[string]kb.SlurmNode{"n1": s.node, "n2": {Name: "n2", State: "IDLE"}}}
	if !s.gone {
		view.Jobs[7] = kb.SlurmJob{ID: 7, Reference: "7", State: "CONFIGURING", User: "alice", UID: 1000, Nodes: []string{"n1"}, NodeCount: 1, Reboot: true}
	}
	return view, nil
}

func (s *oneJob) set(state string, flags ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.node = kb.SlurmNode{Name: "n1", State: state, Flags: flags, Reason: "kprof: x"}
}

func (s *oneJob) Nodes(ctx context.Context, _ []string) (map[string]kb.SlurmNode, error) {
	view, err := s.View(ctx, false)
	return view.Nodes, err
}

func (s *oneJob) Cgroup(context.Context, uint32) (string, error)                        { return "", nil }
func (s *oneJob) AdminComment(context.Context, uint32) (string, error)                  { return "", nil }
func (s *oneJob) ArmReturn(context.Context, []string) error                             { return nil }
func (s *oneJob) Label(context.Context, []string, string) error                         { return nil }
func (s *oneJob) SettleBoot(context.Context, string, string) error                      { return nil }
func (s *oneJob) Resume(context.Context, string) error                                  { return nil }
func (s *oneJob) RestoreState(context.Context, string, string, string, time.Time) error { return nil }
func (s *oneJob) Disarm(context.Context, []string) error                                { return nil }
func (s *oneJob) Drain(context.Context, string, string, time.Time) error                { return nil }
func (s *oneJob) Down(context.Context, string, string, time.Time) error                 { return nil }
func (s *oneJob) UndoPrologDrain(context.Context, string, string) error                 { return nil }
func (s *oneJob) Cancel(context.Context, string) error                                  { return nil }
func (s *oneJob) EndWait(context.Context, string) error                                 { return nil }
func (s *oneJob) Comment(context.Context, string, string) error                         { return nil }
func (s *oneJob) HoldForUser(context.Context, string) error                             { return nil }
func (s *oneJob) StartNow(context.Context, string) error                                { return nil }
func (s *oneJob) StartID(context.Context) (string, error)                               { return "b", nil }
func (s *oneJob) SetFeatures(context.Context, []string, string, string) error           { return nil }
func (s *oneJob) SetNoRequeue(context.Context, string) error                            { return nil }
func (s *oneJob) DropReservation(context.Context, string) error                         { return nil }
func (s *oneJob) Requeue(ctx context.Context, reference string) error                   { return s.Hold(ctx, reference) }
func (s *oneJob) Reserve(_ context.Context, _, _, _ string, _ []string) error           { return nil }

func (s *oneJob) Hold(context.Context, string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone = true
	return nil
}

// serveBroker serves a real controller.
func serveBroker(t testing.TB, change func(*server.Options), more func(*server.Server, *controller.Controller)) (*fixture, *oneJob) {
	t.Helper()
	return serveTerm(t, always{}, change, more)
}

// serveTerm serves a real controller for a time.
func serveTerm(t testing.TB, term server.Term, change func(*server.Options), more func(*server.Server, *controller.Controller)) (*fixture, *oneJob) {
	t.Helper()
	slurm := &oneJob{}
	slurm.set("ALLOCATED", "POWERING_UP")
	var running *controller.Controller
	kept := memstore.New()
	t.Cleanup(func() {
		if err := kept.Close(); err != nil {
			t.Error(err)
		}
	})
	profiles := catalog.New(catalog.Options{Store: kept, Log: slog.New(slog.DiscardHandler)})
	f := serve(t, func(o *server.Options) {
		o.Catalog = profiles
		if change != nil {
			change(o)
		}
	}, func(served *server.Server) {
		for _, name := range []string{"stock", "mitgcm"} {
			p := convert.ProfileFromProto(apiProfile(name, digestOf([]byte(name)), 1))
			p.Versions[0].Kernel.BuildID = strings.Repeat(map[string]string{"stock": "aa", "mitgcm": "bb"}[name], 20)
			if _, _, err := profiles.Apply(t.Context(), name, p); err != nil {
				t.Fatal(err)
			}
		}
		config := plan.Defaults()
		config.RegisterDelay = time.Millisecond
		var err error
		running, err = controller.New(t.Context(), controller.Options{Store: kept, Catalog: profiles, Slurm: slurm, Plan: config,
			PollBusy: 5 * time.Millisecond, PollIdle: 10 * time.Millisecond, QuarantineAfter: 2, KeepJobs: 10, Log: slog.New(slog.DiscardHandler),
			HasArtifact: func(string, uint64) (bool, error) { return false, nil }})
		if err != nil {
			t.Fatal(err)
		}
		api.RegisterNodeServiceServer(served, server.NewNodeService(running, term))
		api.RegisterAllocationServiceServer(served, server.NewAllocationService(running))
		if more != nil {
			more(served, running)
		}
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- running.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	f.store = kept
	return f, slurm
}

const bootID = "8ad0c5a4-0000-4000-8000-000000000000"

func hello(change func(*api.Hello)) *api.ConnectRequest {
	h := &api.Hello{Node: "n1", BootId: bootID, BuildId: strings.Repeat("aa", 20), Release: "6.1.0-stock",
		Inventory: &api.Inventory{Architecture: "x86_64", MemoryMib: 100}, BootedAt: timestamppb.Now()}
	if change != nil {
		change(h)
	}
	return &api.ConnectRequest{Message: &api.ConnectRequest_Hello{Hello: h}}
}

func join(t *testing.T, f *fixture, first *api.ConnectRequest) api.NodeService_ConnectClient {
	t.Helper()
	stream, err := api.NewNodeServiceClient(f.remote(t)).Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if first != nil {
		say(t, stream, first)
	}
	return stream
}

// wished reads until the wish is as asked.
func wished(t *testing.T, stream api.NodeService_ConnectClient, is func(*api.Desired) bool) *api.Desired {
	t.Helper()
	for {
		m, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if d := m.GetDesired(); d != nil && is(d) {
			return d
		}
	}
}

// shortTerm is over when a test says so.
type shortTerm struct{ over atomic.Bool }

func (*shortTerm) Epoch() uint64 { return 12 }

func (s *shortTerm) MayAct() error {
	if s.over.Load() {
		return fmt.Errorf("another broker may act: %w", kb.ErrUnavailable)
	}
	return nil
}

// Each message carries the epoch. When that is over, agents hear nothing more of this broker, also what waited for them.
func TestAgentsHearNothingAfterTheTerm(t *testing.T) {
	term := &shortTerm{}
	f, _ := serveTerm(t, term, nil, nil)
	stream := join(t, f, hello(nil))
	for seen := 0; seen < 2; seen++ {
		m, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if m.GetEpoch() != 12 {
			t.Errorf("%v has epoch %d", m, m.GetEpoch())
		}
		say(t, stream, &api.ConnectRequest{Message: &api.ConnectRequest_Heartbeat{Heartbeat: &api.Heartbeat{Number: uint64(seen + 1)}}})
	}
	term.over.Store(true)
	say(t, stream, &api.ConnectRequest{Message: &api.ConnectRequest_Heartbeat{Heartbeat: &api.Heartbeat{Number: 9}}})
	for {
		m, err := stream.Recv()
		if err == nil && m.GetHeartbeat().GetNumber() != 9 {
			continue // it was under way
		}
		if status.Code(err) != codes.Unavailable {
			t.Errorf("%v, %v", m, err)
		}
		break
	}
	again := join(t, f, hello(nil))
	if m, err := again.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("a new stream: %v, %v", m, err)
	}
}

func TestHelloIsChecked(t *testing.T) {
	f, _ := serveBroker(t, nil, nil)
	long := strings.Repeat("x", 200)
	for name, c := range map[string]struct {
		first *api.ConnectRequest
		code  codes.Code
		words string
	}{
		"no hello":                  {&api.ConnectRequest{Message: &api.ConnectRequest_Heartbeat{Heartbeat: &api.Heartbeat{}}}, codes.InvalidArgument, "first message"},
		"nothing at all":            {&api.ConnectRequest{}, codes.InvalidArgument, "is empty"},
		"no name":                   {hello(func(h *api.Hello) { h.Node = "" }), codes.InvalidArgument, "node name"},
		"a name that is a path":     {hello(func(h *api.Hello) { h.Node = "../n1" }), codes.InvalidArgument, "node name"},
		"a node of nobody's":        {hello(func(h *api.Hello) { h.Node = "n9" }), codes.NotFound, "slurmctld's configuration"},
		"no boot id":                {hello(func(h *api.Hello) { h.BootId = "" }), codes.InvalidArgument, "boot id"},
		"a long boot id":            {hello(func(h *api.Hello) { h.BootId = long }), codes.InvalidArgument, "boot id"},
		"a long build id":           {hello(func(h *api.Hello) { h.BuildId = long }), codes.InvalidArgument, "build id"},
		"a long release":            {hello(func(h *api.Hello) { h.Release = long }), codes.InvalidArgument, "release"},
		"a release with a new line": {hello(func(h *api.Hello) { h.Release = "6.1\nNodeName=n2 State=IDLE" }), codes.InvalidArgument, "release"},
		"a build id with a blank":   {hello(func(h *api.Hello) { h.BuildId = "ab cd" }), codes.InvalidArgument, "build id"},
		"a token that is none":      {hello(func(h *api.Hello) { h.Token = "secret" }), codes.InvalidArgument, "32 hex digits"},
		"drivers without end":       {hello(func(h *api.Hello) { h.Inventory.Drivers = make([]string, 300) }), codes.InvalidArgument, "300 drivers"},
		"a driver without end":      {hello(func(h *api.Hello) { h.Inventory.Drivers = []string{long} }), codes.InvalidArgument, "is no architecture"},
		"a driver with a new line":  {hello(func(h *api.Hello) { h.Inventory.Drivers = []string{"ext4\nmitgcm requested"} }), codes.InvalidArgument, "is no architecture"},
		"a terminal's words":        {hello(func(h *api.Hello) { h.Inventory.Architecture = "\x1b[2J" }), codes.InvalidArgument, "is no architecture"},
		"a root without end":        {hello(func(h *api.Hello) { h.Inventory.RootDevice = "/dev/" + long + long }), codes.InvalidArgument, "root device"},
		"a root of slashes":         {hello(func(h *api.Hello) { h.Inventory.RootDevice = strings.Repeat("/", 1000) }), codes.InvalidArgument, "root device"},
		"a year that no record has": {hello(func(h *api.Hello) { h.BootedAt = &timestamppb.Timestamp{Seconds: 253402300800} }), codes.InvalidArgument, "year 10000"},
		"a year before the first":   {hello(func(h *api.Hello) { h.BootedAt = &timestamppb.Timestamp{Seconds: -62135596801} }), codes.InvalidArgument, "year 0"},
	} {
		t.Run(name, func(t *testing.T) {
			// The poll of slurmctld that knows its nodes may come a moment later.
			var err error
			for end := time.Now().Add(soon); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
				stream := join(t, f, c.first)
				if _, err = stream.Recv(); err != nil {
					break
				}
				if err := stream.CloseSend(); err != nil {
					t.Fatal(err)
				}
			}
			want(t, name, err, c.code, c.words)
		})
	}
}

func TestMalformedMessagesEndTheStream(t *testing.T) {
	f, _ := serveBroker(t, nil, nil)
	for name, m := range map[string]*api.ConnectRequest{
		"a second hello":           hello(nil),
		"nothing":                  {},
		"a report without a state": {Message: &api.ConnectRequest_Report{Report: &api.SwitchReport{Generation: 1}}},
		"a state of the future":    {Message: &api.ConnectRequest_Report{Report: &api.SwitchReport{State: 99}}},
	} {
		stream := join(t, f, hello(nil))
		wished(t, stream, func(*api.Desired) bool { return true })
		say(t, stream, m)
		var err error
		for err == nil {
			_, err = stream.Recv()
		}
		want(t, name, err, codes.InvalidArgument, "")
	}
}

func TestNewerStreamTakesOver(t *testing.T) {
	f, _ := serveBroker(t, nil, nil)
	first := join(t, f, hello(nil))
	wished(t, first, func(d *api.Desired) bool { return d.GetAttested() })
	second := join(t, f, hello(nil))
	wished(t, second, func(d *api.Desired) bool { return d.GetAttested() })
	var err error
	for err == nil {
		_, err = first.Recv()
	}
	want(t, "the first stream", err, codes.Aborted, `node "n1"`)
	node, err := api.NewNodeServiceClient(f.local(t)).GetNode(t.Context(), &api.GetNodeRequest{Name: "n1"})
	if err != nil || !node.GetNode().GetConnected() || node.GetNode().GetRunningProfile() != "stock" {
		t.Errorf("GetNode = %v, %v", node, err)
	}
}

// A job's whole way to its kernel as agent, hook and user see it.
func TestSwitchOverTheWire(t *testing.T) {
	f, slurm := serveBroker(t, nil, nil)
	agent := join(t, f, hello(nil))
	wished(t, agent, func(d *api.Desired) bool { return d.GetAttested() && d.GetSlurmdAllowed() })
	jobs := api.NewAllocationServiceClient(f.local(t))
	hook, err := jobs.EnsureKernel(t.Context(), &api.EnsureKernelRequest{JobId: 7, Profile: "mitgcm@1", Nodes: []string{"n1"}})
	if err != nil {
		t.Fatal(err)
	}
	d := wished(t, agent, func(d *api.Desired) bool { return d.GetKernel() != nil })
	if d.GetKernel().GetProfile() != "mitgcm" || kb.ValidateToken(d.GetToken()) != nil || d.GetSlurmdAllowed() || d.GetJobs()[0] != 7 {
		t.Errorf("desired %v", d)
	}
	for _, state := range []api.SwitchState{api.SwitchState_SWITCH_STATE_FETCHING, api.SwitchState_SWITCH_STATE_LOADED, api.SwitchState_SWITCH_STATE_EXECUTING} {
		report := &api.SwitchReport{Generation: d.GetGeneration(), State: state, Detail: "words\x1b[31m\nand more"}
		say(t, agent, &api.ConnectRequest{Message: &api.ConnectRequest_Report{Report: report}})
	}
	if !d.GetAnswersHeartbeats() {
		t.Error("the agent is not told that heartbeats are answered")
	}
	say(t, agent, &api.ConnectRequest{Message: &api.ConnectRequest_Heartbeat{Heartbeat: &api.Heartbeat{Number: 9}}})
	for number := uint64(0); number != 9; {
		m, err := agent.Recv()
		if err != nil {
			t.Fatal(err)
		}
		number = m.GetHeartbeat().GetNumber()
	}
	until(t, "the last report", func() bool {
		job, err := jobs.GetJob(t.Context(), &api.GetJobRequest{JobId: 7})
		return err == nil && strings.Count(fmt.Sprint(job.GetJob().GetTimeline()), "words") == 3
	})
	agent = join(t, f, hello(func(h *api.Hello) {
		h.BootId, h.BuildId, h.Token, h.Release = "new"+bootID, strings.Repeat("bb", 20), d.GetToken(), "6.1.0-mitgcm"
	}))
	d = wished(t, agent, func(d *api.Desired) bool {
		return d.GetAttested() && d.GetSlurmdAllowed() && d.GetRunningProfile() == "mitgcm" && d.GetKernel() == nil
	})
	slurm.set("ALLOCATED", "DRAIN", "REBOOT_REQUESTED")
	slurmd := func(generation uint64) *api.ConnectRequest {
		return &api.ConnectRequest{Message: &api.ConnectRequest_Slurmd{Slurmd: &api.SlurmdReport{Generation: generation, Running: true}}}
	}
	say(t, agent, slurmd(d.GetGeneration()-1))
	time.Sleep(50 * time.Millisecond)
	if job, err := jobs.GetJob(t.Context(), &api.GetJobRequest{JobId: 7}); err != nil || job.GetJob().GetPhase() == api.AllocationPhase_ALLOCATION_PHASE_READY {
		t.Errorf("ready before the gate knows the job: %v, %v", job, err)
	}
	var sending sync.Mutex
	answers := make(chan *api.JobEndingAnswer, 1)
	go func() { // an agent answers each desired state
		for generation := d.GetGeneration(); ; {
			sending.Lock()
			sent := agent.Send(slurmd(generation))
			sending.Unlock()
			m, err := agent.Recv()
			if sent != nil || err != nil {
				close(answers)
				return
			}
			if desired := m.GetDesired(); desired != nil {
				generation = desired.GetGeneration()
			} else if answer := m.GetJobEnding(); answer != nil {
				answers <- answer
			}
		}
	}()
	var last *api.EnsureKernelResponse
	for {
		p, err := hook.Recv()
		if err != nil {
			break
		}
		last = p
	}
	if last.GetPhase() != api.AllocationPhase_ALLOCATION_PHASE_READY || last.GetNodesReady() != 1 || last.GetNodesTotal() != 1 {
		t.Errorf("the hook was told %v at the end", last)
	}
	job, err := jobs.GetJob(t.Context(), &api.GetJobRequest{JobId: 7})
	if err != nil || job.GetJob().GetPhase() != api.AllocationPhase_ALLOCATION_PHASE_READY || len(job.GetJob().GetDuring()) != 1 ||
		job.GetJob().GetDuring()[0].GetRelease() != "6.1.0-mitgcm" {
		t.Errorf("GetJob = %v, %v", job, err)
	}
	if text := fmt.Sprint(job.GetJob().GetTimeline()); strings.Contains(text, "\\x1b") || strings.Contains(text, "\\n") || !strings.Contains(text, "words [31m and more") {
		t.Errorf("timeline %s", text)
	}
	list, err := jobs.ListJobs(t.Context(), &api.ListJobsRequest{Limit: 1000})
	if err != nil || len(list.GetJobs()) != 1 {
		t.Errorf("ListJobs = %v, %v", list, err)
	}
	// The epilog asks; nobody waits for this kernel.
	ending := &api.JobEnding{Query: 5, JobId: 7}
	sending.Lock()
	say(t, agent, &api.ConnectRequest{Message: &api.ConnectRequest_JobEnding{JobEnding: ending}})
	sending.Unlock()
	if answer := <-answers; answer.GetQuery() != 5 || answer.GetKept() {
		t.Errorf("answer %v", answer)
	}
	sending.Lock()
	defer sending.Unlock()
	if err := agent.CloseSend(); err != nil {
		t.Fatal(err)
	}
}

func TestAllocationRequestsAreChecked(t *testing.T) {
	f, _ := serveBroker(t, nil, nil)
	jobs := api.NewAllocationServiceClient(f.local(t))
	for name, c := range map[string]struct {
		r     *api.EnsureKernelRequest
		code  codes.Code
		words string
	}{
		"no profile":      {&api.EnsureKernelRequest{JobId: 7, Nodes: []string{"n1"}}, codes.InvalidArgument, "profile name"},
		"a bad version":   {&api.EnsureKernelRequest{JobId: 7, Profile: "mitgcm@01", Nodes: []string{"n1"}}, codes.InvalidArgument, "version"},
		"no job":          {&api.EnsureKernelRequest{Profile: "mitgcm", Nodes: []string{"n1"}}, codes.InvalidArgument, "job id"},
		"no nodes":        {&api.EnsureKernelRequest{JobId: 7, Profile: "mitgcm"}, codes.InvalidArgument, "nodes"},
		"a bad node":      {&api.EnsureKernelRequest{JobId: 7, Profile: "mitgcm", Nodes: []string{"n1 n2"}}, codes.InvalidArgument, "node name"},
		"other nodes":     {&api.EnsureKernelRequest{JobId: 7, Profile: "mitgcm", Nodes: []string{"n2"}}, codes.InvalidArgument, "is on nodes"},
		"an unknown job":  {&api.EnsureKernelRequest{JobId: 8, Profile: "mitgcm", Nodes: []string{"n1"}}, codes.NotFound, "job 8.0"},
		"another restart": {&api.EnsureKernelRequest{JobId: 7, RestartCount: 2, Profile: "mitgcm", Nodes: []string{"n1"}}, codes.NotFound, "job 7.2"},
		"stock":           {&api.EnsureKernelRequest{JobId: 7, Profile: "stock", Nodes: []string{"n1"}}, codes.InvalidArgument, "no allocation"},
	} {
		stream, err := jobs.EnsureKernel(t.Context(), c.r)
		if err != nil {
			t.Fatal(err)
		}
		_, err = stream.Recv()
		want(t, name, err, c.code, c.words)
	}
	unknown, err := jobs.EnsureKernel(t.Context(), &api.EnsureKernelRequest{JobId: 7, Profile: "mitgmc", Nodes: []string{"n1"}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = unknown.Recv()
	want(t, "an unknown profile", err, codes.NotFound, `did you mean "mitgcm"`)
	_, err = jobs.ReleaseJob(t.Context(), &api.ReleaseJobRequest{})
	want(t, "ReleaseJob", err, codes.InvalidArgument, "job id")
	_, err = jobs.ReleaseJob(t.Context(), &api.ReleaseJobRequest{JobId: 99})
	want(t, "ReleaseJob of an unknown job", err, codes.OK, "")
	_, err = jobs.NoteReboot(t.Context(), &api.NoteRebootRequest{Nodes: []string{"n1", "-x"}})
	want(t, "NoteReboot", err, codes.InvalidArgument, "node name")
	_, err = jobs.GetJob(t.Context(), &api.GetJobRequest{})
	want(t, "GetJob", err, codes.InvalidArgument, "job id")
	_, err = jobs.GetJob(t.Context(), &api.GetJobRequest{JobId: 99})
	want(t, "GetJob", err, codes.NotFound, "job 99")
	_, err = api.NewNodeServiceClient(f.local(t)).GetNode(t.Context(), &api.GetNodeRequest{Name: "n2"})
	want(t, "GetNode", err, codes.NotFound, `node "n2"`)
	f.store.FailReads(1)
	_, err = jobs.ListJobs(t.Context(), &api.ListJobsRequest{})
	want(t, "ListJobs", err, codes.Unavailable, "jobs")
}
