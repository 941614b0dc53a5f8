// SPDX-License-Identifier: Apache-2.0

package web

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/graph"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
	"github.com/kernelbroker/kernelbroker/kernel-broker/report/runreport"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func at(seconds float64) *timestamppb.Timestamp {
	return timestamppb.New(noon.Add(time.Duration(seconds * float64(time.Second))))
}

// broker is what a test set it.
type broker struct {
	api.UnimplementedNodeServiceServer
	api.UnimplementedAllocationServiceServer
	api.UnimplementedCatalogServiceServer
	api.UnimplementedRunServiceServer
	api.UnimplementedHardwareServiceServer
	api.UnimplementedHealthServiceServer
	api.UnimplementedEventServiceServer

	mu       sync.Mutex
	nodes    []*api.Node
	jobs     []*api.Job
	profiles []*api.Profile
	runs     []*api.Run
	ledger   *api.ListHardwareResponse
	health   *api.GetHealthResponse
	away     bool
}

func (b *broker) change(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f()
}

// answer is made under the lock, unless the broker is away.
func answer[R any](b *broker, make func() (R, error)) (R, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.away {
		var none R
		return none, status.Error(codes.Unavailable, "the store is away")
	}
	return make()
}

func notFound(what string) error { return status.Error(codes.NotFound, what+": not found") }

func (b *broker) ListNodes(context.Context, *api.ListNodesRequest) (*api.ListNodesResponse, error) {
	return answer(b, func() (*api.ListNodesResponse, error) { return &api.ListNodesResponse{Nodes: b.nodes}, nil })
}

func (b *broker) GetNode(_ context.Context, r *api.GetNodeRequest) (*api.GetNodeResponse, error) {
	return answer(b, func() (*api.GetNodeResponse, error) {
		for _, n := range b.nodes {
			if n.GetName() == r.GetName() {
				return &api.GetNodeResponse{Node: n}, nil
			}
		}
		return nil, notFound("node " + r.GetName())
	})
}

func (b *broker) ListEvents(_ context.Context, r *api.ListEventsRequest) (*api.ListEventsResponse, error) {
	return answer(b, func() (*api.ListEventsResponse, error) {
		if r.GetFilter().GetNode() != "n1" {
			return &api.ListEventsResponse{}, nil
		}
		node := api.EventSubject_EVENT_SUBJECT_NODE
		return &api.ListEventsResponse{Events: []*api.Event{
			{Number: 1, At: at(0), Subject: node, Node: "n1", Event: "out-of-service", To: "drained", Who: "eve", Why: "bad fan"},
			{Number: 2, At: at(60), Subject: node, Node: "n1", Event: "boot-requested", JobId: 14, User: "alice", Profile: "mitgcm", Version: 3, To: "mitgcm@3", Who: "kernel-broker", Why: "by kexec"},
			{Number: 3, At: at(69), Subject: node, Node: "n1", Event: "proven", JobId: 14, User: "alice", Profile: "mitgcm", Version: 3, Who: "kernel-broker", Took: durationpb.New(9 * time.Second)},
		}}, nil
	})
}

func (b *broker) ListJobs(context.Context, *api.ListJobsRequest) (*api.ListJobsResponse, error) {
	return answer(b, func() (*api.ListJobsResponse, error) { return &api.ListJobsResponse{Jobs: b.jobs}, nil })
}

func (b *broker) GetJob(_ context.Context, r *api.GetJobRequest) (*api.GetJobResponse, error) {
	return answer(b, func() (*api.GetJobResponse, error) {
		for _, j := range b.jobs {
			if j.GetJobId() == r.GetJobId() && (r.RestartCount == nil || r.GetRestartCount() == j.GetRestartCount()) {
				return &api.GetJobResponse{Job: j}, nil
			}
		}
		return nil, notFound(fmt.Sprintf("job %d", r.GetJobId()))
	})
}

func (b *broker) GetJobWait(_ context.Context, r *api.GetJobWaitRequest) (*api.GetJobWaitResponse, error) {
	return answer(b, func() (*api.GetJobWaitResponse, error) {
		if r.GetJobId() != 21 {
			return nil, notFound(fmt.Sprintf("job %d", r.GetJobId()))
		}
		return &api.GetJobWaitResponse{State: "PENDING", Waits: []string{"the boot of n81 and n87, which took 17 s at the median"}}, nil
	})
}

func (b *broker) ListProfiles(context.Context, *api.ListProfilesRequest) (*api.ListProfilesResponse, error) {
	return answer(b, func() (*api.ListProfilesResponse, error) { return &api.ListProfilesResponse{Profiles: b.profiles}, nil })
}

func (b *broker) GetProfile(_ context.Context, r *api.GetProfileRequest) (*api.GetProfileResponse, error) {
	return answer(b, func() (*api.GetProfileResponse, error) {
		for _, p := range b.profiles {
			if p.GetName() == r.GetName() {
				return &api.GetProfileResponse{Profile: p}, nil
			}
		}
		return nil, notFound("profile " + r.GetName())
	})
}

func (b *broker) ListRuns(context.Context, *api.ListRunsRequest) (*api.ListRunsResponse, error) {
	return answer(b, func() (*api.ListRunsResponse, error) { return &api.ListRunsResponse{Runs: b.runs}, nil })
}

func (b *broker) GetRun(_ context.Context, r *api.GetRunRequest) (*api.GetRunResponse, error) {
	return answer(b, func() (*api.GetRunResponse, error) {
		for _, run := range b.runs {
			if run.GetId() == r.GetId() {
				return &api.GetRunResponse{Run: run}, nil
			}
		}
		return nil, notFound(fmt.Sprintf("run %d", r.GetId()))
	})
}

func (b *broker) ListHardware(context.Context, *api.ListHardwareRequest) (*api.ListHardwareResponse, error) {
	return answer(b, func() (*api.ListHardwareResponse, error) { return b.ledger, nil })
}

func (b *broker) GetHealth(context.Context, *api.GetHealthRequest) (*api.GetHealthResponse, error) {
	return answer(b, func() (*api.GetHealthResponse, error) { return b.health, nil })
}

// serve a broker and return the page over it.
func serve(t *testing.T, b *broker, change ...func(*Options)) *Server {
	t.Helper()
	listener := bufconn.Listen(1 << 20)
	served := grpc.NewServer()
	api.RegisterNodeServiceServer(served, b)
	api.RegisterAllocationServiceServer(served, b)
	api.RegisterCatalogServiceServer(served, b)
	api.RegisterRunServiceServer(served, b)
	api.RegisterHardwareServiceServer(served, b)
	api.RegisterHealthServiceServer(served, b)
	api.RegisterEventServiceServer(served, b)
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := served.Serve(listener); err != nil {
			t.Error(err)
		}
	})
	conn, err := grpc.NewClient("passthrough:///broker", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(32<<20)),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		served.Stop()
		serving.Wait()
	})
	o := Options{Version: "1.2.3", Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return noon.Add(100 * time.Second) }, Pause: 20 * time.Millisecond,
		Source: Source{Broker: conn, Address: "unix:///run/b.sock", Report: reportOf, Document: document, Builds: someBuilds, Gain: gain}}
	for _, c := range change {
		c(&o)
	}
	return New(o)
}

func gain(v *api.ProfileVersion) (kernel, whole string) {
	if v.GetMeasured() == nil {
		return "not measured", ""
	}
	return "-31 %", "-15 % of the job's time"
}

// reportOf a run whose files the caller may read: of alice, since bob's have no digest.
func reportOf(_ context.Context, r *api.Run) (runreport.Report, error) {
	if r.GetUser() != "alice" {
		return runreport.Report{}, fmt.Errorf("run %d has no results for you: they are for user %s and for administrators: %w", r.GetId(), r.GetUser(), kb.ErrFailedPrecondition)
	}
	result := profiling.Result{Format: profiling.Format, Job: 14, Collectors: []profiling.Collector{profiling.CollectCallgraph},
		Nodes: []profiling.Node{{Name: "n1", Kernel: profiling.Kernel{Release: "6.1-x"}, CPUs: 1, Begin: noon, End: noon.Add(time.Second),
			JobNS: 1e9, UserNS: 7e8, SystemNS: 3e8}},
		CallGraph: &profiling.CallGraph{PeriodNS: 1e6, Kernel: 4, User: 9, Stacks: []profiling.Stack{{Frames: []string{"do_syscall_64", "vfs_write"}, Samples: 4}}}}
	return runreport.New(runreport.Run{ID: r.GetId(), User: r.GetUser()}, result, noon), nil
}

// document is a report that somebody registered, with a script that tries to get out.
func document(context.Context, string, uint64) ([]byte, error) {
	return []byte(`<!DOCTYPE html><title>report</title><script>
		document.title = "ran as " + window.origin;
		fetch("/runs/8").then(function () { document.title = "read"; }, function () { document.title += ", kept in"; });
	</script>`), nil
}

func someBuilds() ([]graph.Status, error) {
	return []graph.Status{
		{Name: "mitgcm", Where: "here", Host: "login1", State: graph.Running, Began: noon, Steps: []graph.StepStatus{
			{Name: "source", State: graph.Done, Cached: true, Bytes: 130 << 20},
			{Name: "build", State: graph.Done, Seconds: 611, Bytes: 9 << 20},
			{Name: "measure", State: graph.Running, Began: noon, Done: 3, Total: 20, Job: "77"}}},
		{Name: "redis", Where: "here", Host: "login1", State: graph.Failed, Began: noon, Ended: noon.Add(time.Minute), Error: `step "build": make: exit 2`,
			Steps: []graph.StepStatus{{Name: "build", State: graph.Failed}}},
	}, nil
}

// hostile is what a peer may send as a text.
const hostile = `<script>document.title = "hostile"</script>"'&`

// cluster of so many nodes, with everything that can be seen on it.
func cluster(nodes int) *broker {
	b := &broker{}
	for i := range nodes {
		n := &api.Node{Name: fmt.Sprintf("n%d", i+1), Phase: api.NodePhase_NODE_PHASE_STEADY, RunningProfile: "stock", RunningVersion: 1,
			DesiredProfile: "stock", DesiredVersion: 1, Attested: true, Connected: true, Release: "6.1.0-48-amd64", BuildId: strings.Repeat("ab", 20),
			LastSeen: at(99), Kexecs: 12, SlurmState: "IDLE", AgentVersion: "1.2.3",
			Inventory: &api.Inventory{Architecture: "x86_64", MemoryMib: 512 << 10, Cpus: 128, RootDevice: "none", RootFilesystem: "rootfs", Drivers: []string{"mlx5_core", "nvme"}},
			Hardware:  &api.Hardware{Board: "Dell-PowerEdge-R6525", Firmware: "2.14.1", Nic: "mlx5_core@15b3:1017"}}
		disguise(n, i)
		b.nodes = append(b.nodes, n)
	}
	b.jobs = someJobs()
	b.profiles = someProfiles()
	b.runs = someRuns()
	b.ledger = someHardware()
	b.health = &api.GetHealthResponse{Healthy: true, Version: "1.2.3", Components: []*api.Component{
		{Name: "store", Healthy: true, Detail: "revision 70012, 12 MiB"}, {Name: "slurm", Healthy: true, Detail: "24.11.5", Warning: "answers after 2 s"},
		{Name: "audit-log", Detail: "no space left on device"}}}
	return b
}

// disguise gives nodes different kernels and states.
func disguise(n *api.Node, i int) {
	switch j := i % 400; {
	case j >= 3 && j < 40:
		n.RunningProfile, n.DesiredProfile, n.JobId, n.SlurmState = "mitgcm", "mitgcm", 14, "ALLOCATED"
	case j >= 40 && j < 60:
		n.RunningProfile, n.DesiredProfile, n.SlurmState = "redis", "redis", "ALLOCATED"
	case j >= 60 && j < 75:
		n.RunningProfile, n.RunningVersion, n.DesiredProfile = "quantum-espresso", 3, "quantum-espresso"
	case j >= 80 && j < 86:
		n.Phase, n.DesiredProfile = api.NodePhase_NODE_PHASE_LOADING, "mitgcm"
	case j >= 86 && j < 90:
		n.Phase, n.DesiredProfile, n.Connected = api.NodePhase_NODE_PHASE_BOOTING, "mitgcm", false
	case j == 95:
		n.Phase, n.Cause, n.RunningProfile, n.RunningVersion = api.NodePhase_NODE_PHASE_FAILED, "the boot took more than 2m0s: "+hostile, "", 0
	case j == 97:
		n.Phase, n.Cause, n.RunningProfile, n.RunningVersion = api.NodePhase_NODE_PHASE_UNPROVEN, "build id differs from the catalog's", "", 0
	case j == 99:
		n.Connected = false
	}
}

func someJobs() []*api.Job {
	lanes := func(nodes ...string) (events []*api.TimelineEvent) {
		for i, node := range nodes {
			x := float64(i)
			events = append(events, &api.TimelineEvent{At: at(.2), Node: node, Event: "armed"}, &api.TimelineEvent{At: at(.4 + x/10), Node: node, Event: "fetching"},
				&api.TimelineEvent{At: at(2.5 + x/3), Node: node, Event: "loaded", Detail: "mitgcm@1"}, &api.TimelineEvent{At: at(3.9 + x/3), Node: node, Event: "kexec"},
				&api.TimelineEvent{At: at(17 + 3*x), Node: node, Event: "booted", Detail: "kernel 6.1.0-mitgcm"},
				&api.TimelineEvent{At: at(17.3 + 3*x), Node: node, Event: "attested"}, &api.TimelineEvent{At: at(18.8 + 3*x), Node: node, Event: "registered"})
		}
		return events
	}
	begin := []*api.TimelineEvent{{At: at(0), Event: "accepted", Detail: "alice asked for mitgcm"}, {At: at(.1), Event: "switching"}}
	done := append(append(begin[:2:2], lanes("n1", "n2", "n3", "n4")...), &api.TimelineEvent{At: at(27.8), Event: "ready"}, &api.TimelineEvent{At: at(28), Event: "running"},
		&api.TimelineEvent{At: at(60), Node: "n2", Event: "taken out of service", Detail: hostile},
		&api.TimelineEvent{At: at(70), Event: "returning"}, &api.TimelineEvent{At: at(71), Node: "n1", Event: "kexec"}, &api.TimelineEvent{At: at(72), Node: "n2", Event: "load failed", Detail: "no space"},
		&api.TimelineEvent{At: at(83), Node: "n1", Event: "booted"}, &api.TimelineEvent{At: at(84), Node: "n1", Event: "stock"}, &api.TimelineEvent{At: at(95), Node: "n2", Event: "stock"}, &api.TimelineEvent{At: at(96), Event: "done"})
	proof := []*api.NodeProof{{Node: "n1", Release: "6.1.0-mitgcm", BuildId: strings.Repeat("cd", 20), Profile: "mitgcm", Version: 1}}
	return []*api.Job{
		{JobId: 21, Reference: "21", User: "carol", Profile: "mitgcm", Version: 1, Nodes: []string{"n4", "n81", "n87"}, Phase: api.AllocationPhase_ALLOCATION_PHASE_SWITCHING,
			Timeline: []*api.TimelineEvent{{At: at(80), Event: "accepted"}, {At: at(80.1), Event: "switching"}, {At: at(82), Node: "n81", Event: "fetching"}, {At: at(90), Node: "n87", Event: "kexec"}}},
		{JobId: 14, Reference: "12_1", User: "alice", Uid: 1000, Profile: "mitgcm", Version: 1, Nodes: []string{"n1", "n2", "n3", "n4"}, Phase: api.AllocationPhase_ALLOCATION_PHASE_DONE,
			Timeline: done, Before: proof, During: proof, After: proof},
		{JobId: 30, Reference: "30_[1-9]", User: "dave", Phase: api.AllocationPhase_ALLOCATION_PHASE_WAITING, Reason: "it waits in Slurm: Priority"},
		{JobId: 18, RestartCount: 1, Reference: "18", User: "bob", Profile: "redis", Version: 1, Nodes: []string{"n96"}, Phase: api.AllocationPhase_ALLOCATION_PHASE_HELD,
			Reason: "node n96: the kernel has no driver for its root device; scontrol release 18 tries again", Timeline: []*api.TimelineEvent{{At: at(5), Event: "accepted"}}},
		{JobId: 18, Reference: "18", User: "bob", Profile: "redis", Version: 1, Phase: api.AllocationPhase_ALLOCATION_PHASE_REQUEUED, Reason: "older"},
		{JobId: 9, Reference: "9", User: "bob", Profile: "redis", Version: 1, Phase: api.AllocationPhase_ALLOCATION_PHASE_FAILED, Reason: "long ago",
			Timeline: []*api.TimelineEvent{{At: at(-7200), Event: "accepted"}}},
	}
}

func someProfiles() []*api.Profile {
	version := func(name string, n uint32) *api.ProfileVersion {
		return &api.ProfileVersion{RegisteredAt: at(0), Kernel: &api.KernelSpec{Profile: name, Version: n, Release: "6.1.0-" + name, BuildId: strings.Repeat("cd", 20), ImageSize: 9 << 20,
			Arguments: []string{"mitigations=auto"}}}
	}
	one, two := version("mitgcm", 1), version("mitgcm", 2)
	one.Documents = []*api.Document{{Name: "page", Digest: "sha256:" + strings.Repeat("d", 64), Size: 100}}
	one.Measured = &api.Measurement{Outcome: api.Outcome_OUTCOME_BENEFIT, Reason: "fewer kernel instructions in 20 of 20 pairs"}
	two.Quarantine = &api.Quarantine{Reason: "failed to boot on n95 and n96", Since: at(50)}
	return []*api.Profile{
		{Name: "mitgcm", Application: "MITgcm", Description: "ocean model, many small files", DefaultVersion: 1, Versions: []*api.ProfileVersion{one, two}, BootAttempts: 2, BootTimeoutMs: 120000,
			Reuse: api.ReusePolicy_REUSE_POLICY_SAME_PROFILE, Fallback: api.FallbackPolicy_FALLBACK_POLICY_HOLD,
			History: []*api.Change{{At: at(0), Who: "root", What: "registered", Version: 1, Reason: "first"}, {At: at(50), Who: "kernel-broker", What: "quarantined", Version: 2}}},
		{Name: "stock", DefaultVersion: 1, Description: hostile, Versions: []*api.ProfileVersion{version("stock", 1)}},
	}
}

func someRuns() []*api.Run {
	run := func(id uint64, user string) *api.Run {
		return &api.Run{Id: id, State: api.RunState_RUN_STATE_PARTIAL, Reason: "n2: lost: delivered nothing", Collectors: []string{"syscalls", "callgraph"}, RequestedBy: user, Requested: at(0),
			JobId: 14, Reference: "12_1", User: user, KernelProfile: "mitgcm", KernelVersion: 1, Began: at(1), Ended: at(50),
			Nodes: []*api.RunNode{{Name: "n1", State: api.RunNodeState_RUN_NODE_STATE_DELIVERED}, {Name: "n2", State: api.RunNodeState_RUN_NODE_STATE_LOST, Reason: "delivered nothing"}}}
	}
	return []*api.Run{{Id: 9, State: api.RunState_RUN_STATE_REQUESTED, Collectors: []string{"io"}, RequestedBy: "root", Application: "MITgcm"}, run(8, "alice"), run(7, "bob")}
}

func someHardware() *api.ListHardwareResponse {
	h := &api.Hardware{Board: "Dell-PowerEdge-R6525", Firmware: "2.14.1", Nic: "mlx5_core@15b3:1017"}
	total := func(median, p95 time.Duration) []*api.PhaseTimes {
		return []*api.PhaseTimes{{Phase: "total", Count: 20, Median: durationpb.New(median), P95: durationpb.New(p95)}}
	}
	return &api.ListHardwareResponse{
		Rows: []*api.HardwareRow{
			{Hardware: h, Profile: "mitgcm", Version: 1, Way: api.BootWay_BOOT_WAY_SWITCH, Tries: 212, Successes: 211, Last: at(0), Phases: total(17*time.Second, 24*time.Second),
				FailedNode: "n95", FailedCause: "silent for 2m0s", FailedAt: at(-50)},
			{Hardware: h, Profile: "mitgcm", Version: 1, Way: api.BootWay_BOOT_WAY_RETURN, Tries: 211, Successes: 211, Last: at(0)}},
		Rules: []*api.HardwareRule{{Name: "old-bios", Board: "Dell*", Firmware: "1.*", Kexec: api.RuleKexec_RULE_KEXEC_NO_RETURN, By: api.BootWay_BOOT_WAY_REBOOT, Author: "root", Reason: "hangs in the firmware"}},
	}
}
