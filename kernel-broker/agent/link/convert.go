// SPDX-License-Identifier: Apache-2.0

package link

import (
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/decide"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"

	"google.golang.org/protobuf/types/known/timestamppb"
)

func helloMessage(h Hello) *api.ConnectRequest {
	return &api.ConnectRequest{Message: &api.ConnectRequest_Hello{Hello: &api.Hello{
		Node:     h.Node,
		BootId:   h.Boot.BootID,
		BuildId:  h.Boot.BuildID,
		Release:  h.Boot.Release,
		Token:    h.Boot.Token,
		BootedAt: timestamppb.New(h.Boot.BootedAt),
		Inventory: &api.Inventory{
			Architecture:   h.Inventory.Architecture,
			MemoryMib:      h.Inventory.MemoryMiB,
			Cpus:           h.Inventory.CPUs,
			RootDevice:     h.Inventory.RootDevice,
			RootFilesystem: h.Inventory.RootFilesystem,
			Drivers:        h.Inventory.Drivers,
		},
		AgentVersion:  h.AgentVersion,
		SlurmdRunning: h.SlurmdRunning,
	}}}
}

func wishOf(d *api.Desired) decide.Wish {
	wish := decide.Wish{
		Generation:    d.GetGeneration(),
		Token:         d.GetToken(),
		Envelope:      d.GetEnvelope(),
		Attested:      d.GetAttested(),
		Running:       kb.Ref{Profile: d.GetRunningProfile(), Version: d.GetRunningVersion()},
		Jobs:          d.GetJobs(),
		Lost:          d.GetLostJobs(),
		SlurmdAllowed: d.GetSlurmdAllowed(),
		SlurmdStart:   d.GetSlurmdStart(),
		NoBootAwaited: d.GetNoBootAwaited(),
		BootKnown:     d.GetBootKnown(),
		Reboot:        d.GetReboot(),
	}
	switch {
	case d.GetSlurmdWait() != nil:
		wish.SlurmdNotBefore = time.Now().Add(d.GetSlurmdWait().AsDuration())
	case d.GetSlurmdNotBefore() != nil: // a broker that is older than this agent
		wish.SlurmdNotBefore = d.GetSlurmdNotBefore().AsTime()
	}
	if k := d.GetKernel(); k != nil {
		wish.Kernel = &kb.Kernel{
			Profile:      k.GetProfile(),
			Version:      k.GetVersion(),
			ImageDigest:  k.GetImageDigest(),
			ImageSize:    k.GetImageSize(),
			InitrdDigest: k.GetInitrdDigest(),
			InitrdSize:   k.GetInitrdSize(),
			Arguments:    k.GetArguments(),
			BuildID:      k.GetBuildId(),
			Release:      k.GetRelease(),
			Architecture: k.GetArchitecture(),
			Drivers:      k.GetDrivers(),
			MinMemoryMiB: k.GetMinMemoryMib(),
		}
	}
	return wish
}

// SwitchReport makes the message for how far a switch is.
func SwitchReport(generation uint64, stage decide.Stage, fault decide.Fault, detail string) *api.ConnectRequest {
	report := &api.SwitchReport{Generation: generation, Detail: detail}
	switch stage {
	case decide.Idle, decide.Fetched:
		report.State = api.SwitchState_SWITCH_STATE_FETCHING
	case decide.Loaded:
		report.State = api.SwitchState_SWITCH_STATE_LOADED
	case decide.Announced:
		report.State = api.SwitchState_SWITCH_STATE_EXECUTING
	case decide.Failed:
		report.State = api.SwitchState_SWITCH_STATE_FAILED
	}
	switch fault {
	case decide.NodeFault:
		report.Failure = api.FailureKind_FAILURE_KIND_NODE
	case decide.KernelFault:
		report.Failure = api.FailureKind_FAILURE_KIND_KERNEL
	case decide.NoFault:
	}
	return &api.ConnectRequest{Message: &api.ConnectRequest_Report{Report: report}}
}

// SlurmdReport makes the message for whether slurmd runs, and for what its gate
// refused.
func SlurmdReport(generation uint64, running bool, start uint64, detail string, refusals []kb.GateRefusal) *api.ConnectRequest {
	report := &api.SlurmdReport{Generation: generation, Running: running, SlurmdStart: start, Detail: detail}
	for _, r := range refusals {
		report.GateRefusals = append(report.GateRefusals, &api.GateRefusal{JobId: r.Job, At: timestamppb.New(r.At), Cause: r.Cause})
	}
	return &api.ConnectRequest{Message: &api.ConnectRequest_Slurmd{Slurmd: report}}
}

func jobEndingMessage(query uint64, job uint32) *api.ConnectRequest {
	return &api.ConnectRequest{Message: &api.ConnectRequest_JobEnding{
		JobEnding: &api.JobEnding{Query: query, JobId: job},
	}}
}

func heartbeatMessage() *api.ConnectRequest {
	return &api.ConnectRequest{Message: &api.ConnectRequest_Heartbeat{
		Heartbeat: &api.Heartbeat{},
	}}
}
