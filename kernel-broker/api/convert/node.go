// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
)

// InventoryFromProto converts a node's report on its hardware.
func InventoryFromProto(i *api.Inventory) kb.Inventory {
	return kb.Inventory{
		Architecture: i.GetArchitecture(), MemoryMiB: i.GetMemoryMib(), CPUs: i.GetCpus(),
		RootDevice: i.GetRootDevice(), RootFilesystem: i.GetRootFilesystem(), Drivers: i.GetDrivers(),
		Cores: i.GetCores(), ApplicationCPUs: i.GetApplicationCpus(), InitrdRoot: i.GetInitrdRoot(), InitrdModule: i.GetInitrdModule(), Hardware: HardwareFromProto(i.GetHardware()),
	}
}

// InventoryToProto is the inverse of InventoryFromProto.
func InventoryToProto(i kb.Inventory) *api.Inventory {
	return &api.Inventory{
		Architecture: i.Architecture, MemoryMib: i.MemoryMiB, Cpus: i.CPUs,
		RootDevice: i.RootDevice, RootFilesystem: i.RootFilesystem, Drivers: i.Drivers,
		Cores: i.Cores, ApplicationCpus: i.ApplicationCPUs, InitrdRoot: i.InitrdRoot, InitrdModule: i.InitrdModule, Hardware: HardwareToProto(i.Hardware),
	}
}

// HelloToProto makes the message that begins an agent's stream.
func HelloToProto(h kb.Hello) *api.ConnectRequest {
	return &api.ConnectRequest{Message: &api.ConnectRequest_Hello{Hello: &api.Hello{
		Node: h.Node, BootId: h.Boot.BootID, BuildId: h.Boot.BuildID, Release: h.Boot.Release, Token: h.Boot.Token,
		BootedAt: timestamppb.New(h.Boot.BootedAt), Inventory: InventoryToProto(h.Inventory),
		AgentVersion: h.AgentVersion, SlurmdRunning: h.SlurmdRunning, Up: durationpb.New(h.Boot.Up),
		Modules: h.Boot.Modules, ModulesFault: h.Boot.ModulesFault,
	}}}
}

// HelloFromProto is the inverse of HelloToProto.
func HelloFromProto(h *api.Hello) kb.Hello {
	return kb.Hello{
		Node: h.GetNode(), Inventory: InventoryFromProto(h.GetInventory()), AgentVersion: h.GetAgentVersion(), SlurmdRunning: h.GetSlurmdRunning(),
		Boot: kb.Boot{BootID: h.GetBootId(), BuildID: h.GetBuildId(), Release: h.GetRelease(),
			Token: h.GetToken(), BootedAt: TimeFromProto(h.GetBootedAt()), Up: max(h.GetUp().AsDuration(), 0),
			Modules: h.GetModules(), ModulesFault: h.GetModulesFault()},
	}
}

// DesiredToProto makes the message with a node's desired state.
func DesiredToProto(d *kb.DesiredState) *api.ConnectResponse {
	out := &api.Desired{
		Generation: d.Generation, Token: d.Token, Envelope: d.Envelope, Attested: d.Attested,
		RunningProfile: d.Running.Profile, RunningVersion: d.Running.Version, Jobs: d.Jobs,
		SlurmdAllowed: d.SlurmdAllowed, SlurmdStart: d.SlurmdStart, SlurmdNotBefore: TimeToProto(d.SlurmdNotBefore),
		NoBootAwaited: d.NoBootAwaited, LostJobs: d.Lost, BootKnown: d.BootKnown, LoadOnly: d.LoadOnly, Reboot: d.Reboot,
	}
	if d.SlurmdWait > 0 {
		out.SlurmdWait = durationpb.New(d.SlurmdWait)
	}
	if d.Kernel != nil {
		out.Kernel = KernelToProto(*d.Kernel)
	}
	return &api.ConnectResponse{Message: &api.ConnectResponse_Desired{Desired: out}}
}

// DesiredFromProto is the inverse of DesiredToProto at the time now by the node's
// clock, from which the wait of slurmd counts.
func DesiredFromProto(d *api.Desired, now time.Time) kb.DesiredState {
	out := kb.DesiredState{
		Generation: d.GetGeneration(), Token: d.GetToken(), Envelope: d.GetEnvelope(), Attested: d.GetAttested(),
		Running: kb.Ref{Profile: d.GetRunningProfile(), Version: d.GetRunningVersion()}, Jobs: d.GetJobs(), Lost: d.GetLostJobs(),
		SlurmdAllowed: d.GetSlurmdAllowed(), SlurmdStart: d.GetSlurmdStart(), SlurmdNotBefore: TimeFromProto(d.GetSlurmdNotBefore()),
		NoBootAwaited: d.GetNoBootAwaited(), BootKnown: d.GetBootKnown(), LoadOnly: d.GetLoadOnly(), Reboot: d.GetReboot(),
	}
	if d.GetSlurmdWait() != nil { // not of an older broker
		out.SlurmdWait = d.GetSlurmdWait().AsDuration()
		out.SlurmdNotBefore = now.Add(out.SlurmdWait)
	}
	if d.GetKernel() != nil {
		k := KernelFromProto(d.GetKernel())
		out.Kernel = &k
	}
	return out
}

var (
	progressToProto = map[kb.Progress]api.SwitchState{
		kb.ProgressIdle:    api.SwitchState_SWITCH_STATE_FETCHING,
		kb.ProgressLoading: api.SwitchState_SWITCH_STATE_FETCHING,
		kb.ProgressLoaded:  api.SwitchState_SWITCH_STATE_LOADED,
		kb.ProgressBooting: api.SwitchState_SWITCH_STATE_EXECUTING,
		kb.ProgressFailed:  api.SwitchState_SWITCH_STATE_FAILED,
	}
	progressFromProto = map[api.SwitchState]kb.Progress{
		api.SwitchState_SWITCH_STATE_FETCHING:  kb.ProgressLoading,
		api.SwitchState_SWITCH_STATE_LOADED:    kb.ProgressLoaded,
		api.SwitchState_SWITCH_STATE_EXECUTING: kb.ProgressBooting,
		api.SwitchState_SWITCH_STATE_FAILED:    kb.ProgressFailed,
	}

	phases = map[kb.Progress]api.NodePhase{
		kb.ProgressSteady:   api.NodePhase_NODE_PHASE_STEADY,
		kb.ProgressLoading:  api.NodePhase_NODE_PHASE_LOADING,
		kb.ProgressBooting:  api.NodePhase_NODE_PHASE_BOOTING,
		kb.ProgressFailed:   api.NodePhase_NODE_PHASE_FAILED,
		kb.ProgressUnproven: api.NodePhase_NODE_PHASE_UNPROVEN,
	}

	failureToProto = map[kb.FailureKind]api.FailureKind{
		kb.FailureNode:   api.FailureKind_FAILURE_KIND_NODE,
		kb.FailureKernel: api.FailureKind_FAILURE_KIND_KERNEL,
	}
)

// SwitchReportToProto makes the message for how far a switch is.
func SwitchReportToProto(r kb.SwitchReport) *api.ConnectRequest {
	return &api.ConnectRequest{Message: &api.ConnectRequest_Report{Report: &api.SwitchReport{
		Generation: r.Generation, State: progressToProto[r.Progress], Failure: failureToProto[r.Kind], Detail: r.Detail}}}
}

// SwitchReportFromProto refuses a state that no agent is in. A failure without a
// kind is the node's.
func SwitchReportFromProto(r *api.SwitchReport) (kb.SwitchReport, error) {
	progress, ok := progressFromProto[r.GetState()]
	if !ok {
		return kb.SwitchReport{}, fmt.Errorf("switch state %v: %w", r.GetState(), kb.ErrInvalid)
	}
	kind := kb.FailureNode
	if r.GetFailure() == api.FailureKind_FAILURE_KIND_KERNEL {
		kind = kb.FailureKernel
	}
	return kb.SwitchReport{Generation: r.GetGeneration(), Progress: progress, Kind: kind, Detail: Text(r.GetDetail())}, nil
}

// SlurmdReportToProto makes the message for whether slurmd runs, and for what
// its gate refused.
func SlurmdReportToProto(r kb.SlurmdReport) *api.ConnectRequest {
	out := &api.SlurmdReport{Generation: r.Generation, Running: r.Running, SlurmdStart: r.Start, Detail: r.Detail}
	for _, g := range r.Refusals {
		out.GateRefusals = append(out.GateRefusals, &api.GateRefusal{JobId: g.Job, At: timestamppb.New(g.At), Cause: g.Cause})
	}
	return &api.ConnectRequest{Message: &api.ConnectRequest_Slurmd{Slurmd: out}}
}

// maxRefusals is how many refusals of its gate a node may report.
const maxRefusals = 8

// SlurmdReportFromProto keeps the newest few refusals.
func SlurmdReportFromProto(r *api.SlurmdReport) kb.SlurmdReport {
	list := r.GetGateRefusals()
	list = list[max(0, len(list)-maxRefusals):]
	out := kb.SlurmdReport{Generation: r.GetGeneration(), Running: r.GetRunning(), Start: r.GetSlurmdStart(),
		Detail: Text(r.GetDetail()), Refusals: make([]kb.GateRefusal, len(list))}
	for i, g := range list {
		out.Refusals[i] = kb.GateRefusal{Job: g.GetJobId(), At: g.GetAt().AsTime(), Cause: Text(g.GetCause())}
	}
	return out
}

// NodeToProto converts a node's record with what is known of its agent.
func NodeToProto(v kb.NodeView) *api.Node {
	n := v.Node
	out := &api.Node{
		Name: n.Name, Phase: phases[n.Progress()],
		RunningProfile: n.Running.Ref.Profile, RunningVersion: n.Running.Ref.Version,
		Release: n.Boot.Release, BuildId: n.Boot.BuildID, BootId: n.Boot.BootID, Attested: n.Running.Ref.Profile != "",
		DesiredProfile: n.Desired.Profile, DesiredVersion: n.Desired.Version, JobId: n.Owner.Job,
		Connected: v.Connected, LastSeen: TimeToProto(v.LastSeen), Kexecs: n.Kexecs, Inventory: InventoryToProto(n.Inventory),
		AgentVersion: v.AgentVersion, Hardware: HardwareToProto(n.Hardware),
	}
	out.Cause = v.SlurmdCause
	if n.Failure != nil {
		out.Cause = n.Failure.Cause
	}
	if s := v.Slurm; s.Name != "" {
		out.SlurmState, out.SlurmReason = s.FullState(), s.Reason
		if s.By != "" {
			out.SlurmReason += " [" + s.By + "]"
		}
	}
	return out
}
