// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/controller"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/plan"
)

// Nodes is what NodeService serves.
type Nodes interface {
	Attach(node string, boot kb.Boot, inventory kb.Inventory, slurmd bool) (*controller.Session, error)
	Nodes() []controller.NodeView
	Node(name string) (controller.NodeView, error)
}

// NewNodeService serves agents, and those who ask for nodes.
func NewNodeService(n Nodes) api.NodeServiceServer { return &nodeService{nodes: n} }

type nodeService struct {
	api.UnimplementedNodeServiceServer
	nodes Nodes
}

// maxDetail bounds the text an agent may add to a report.
const maxDetail = 1024

// Connect implements api.NodeServiceServer.
func (s *nodeService) Connect(stream api.NodeService_ConnectServer) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	hello := first.GetHello()
	if hello == nil {
		return fmt.Errorf("the first message of an agent is a hello: %w", kb.ErrInvalid)
	}
	boot, err := bootFromHello(hello)
	if err != nil {
		return err
	}
	session, err := s.nodes.Attach(hello.GetNode(), boot, InventoryFromProto(hello.GetInventory()), hello.GetSlurmdRunning())
	if err != nil {
		return err
	}
	defer session.Detach()
	received := make(chan error, 1)
	go func() { received <- receive(stream, session) }()
	for {
		select {
		case m := <-session.Messages():
			if err := stream.Send(messageToProto(m)); err != nil {
				return err
			}
		case <-session.Replaced():
			return status.Errorf(codes.Aborted, "a newer stream of node %q took over", hello.GetNode())
		case err := <-received:
			return err
		}
	}
}

func bootFromHello(h *api.Hello) (kb.Boot, error) {
	boot := kb.Boot{BootID: h.GetBootId(), BuildID: h.GetBuildId(), Release: h.GetRelease(),
		Token: h.GetToken(), BootedAt: TimeFromProto(h.GetBootedAt())}
	if err := kb.ValidateNodeName(h.GetNode()); err != nil {
		return boot, err
	}
	for _, check := range []func() error{boot.Validate, InventoryFromProto(h.GetInventory()).Validate} {
		if err := check(); err != nil {
			return boot, fmt.Errorf("node %q: %w", h.GetNode(), err)
		}
	}
	return boot, nil
}

func receive(stream api.NodeService_ConnectServer, session *controller.Session) error {
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		switch m := m.GetMessage().(type) {
		case *api.ConnectRequest_Report:
			report, err := reportFromProto(m.Report)
			if err != nil {
				return err
			}
			session.Report(report)
		case *api.ConnectRequest_Slurmd:
			session.Slurmd(m.Slurmd.GetSlurmdStart(), m.Slurmd.GetRunning(), clip(m.Slurmd.GetDetail()))
			session.Refused(refusalsFromProto(m.Slurmd.GetGateRefusals()))
		case *api.ConnectRequest_JobEnding:
			session.Ending(m.JobEnding.GetQuery(), m.JobEnding.GetJobId())
		case *api.ConnectRequest_Run:
			report, err := runReportFromProto(m.Run)
			if err != nil {
				return err
			}
			session.RunReport(m.Run.GetRunId(), report, m.Run.GetFigures())
		case *api.ConnectRequest_Heartbeat:
		default:
			return fmt.Errorf("message %T after the hello: %w", m, kb.ErrInvalid)
		}
	}
}

// maxRefusals is how many refusals of its gate a node may tell of.
const maxRefusals = 8

func refusalsFromProto(list []*api.GateRefusal) []kb.GateRefusal {
	list = list[max(0, len(list)-maxRefusals):]
	refusals := make([]kb.GateRefusal, len(list))
	for i, r := range list {
		refusals[i] = kb.GateRefusal{Job: r.GetJobId(), At: r.GetAt().AsTime(), Cause: clip(r.GetCause())}
	}
	return refusals
}

var reportStates = map[api.SwitchState]plan.ReportState{
	api.SwitchState_SWITCH_STATE_FETCHING:  plan.ReportFetching,
	api.SwitchState_SWITCH_STATE_LOADED:    plan.ReportLoaded,
	api.SwitchState_SWITCH_STATE_EXECUTING: plan.ReportExecuting,
	api.SwitchState_SWITCH_STATE_FAILED:    plan.ReportFailed,
}

func reportFromProto(r *api.SwitchReport) (plan.Report, error) {
	state, ok := reportStates[r.GetState()]
	if !ok {
		return plan.Report{}, fmt.Errorf("switch state %v: %w", r.GetState(), kb.ErrInvalid)
	}
	kind := kb.FailureNode
	if r.GetFailure() == api.FailureKind_FAILURE_KIND_KERNEL {
		kind = kb.FailureKernel
	}
	return plan.Report{Generation: r.GetGeneration(), State: state, Kind: kind, Detail: clip(r.GetDetail())}, nil
}

// clip makes an agent's text fit for a line of a log or of a comment.
func clip(text string) string {
	clean := make([]rune, 0, min(len(text), maxDetail))
	for _, c := range text {
		if c < ' ' || c > '~' {
			c = ' '
		}
		if clean = append(clean, c); len(clean) == maxDetail {
			break
		}
	}
	return string(clean)
}

func messageToProto(m controller.Message) *api.ConnectResponse {
	switch {
	case m.Desired != nil:
		d := m.Desired
		out := &api.Desired{
			Generation: d.Generation, Token: d.Token, Attested: d.Attested,
			RunningProfile: d.Running.Profile, RunningVersion: d.Running.Version, Jobs: d.Jobs,
			SlurmdAllowed: d.SlurmdAllowed, SlurmdStart: d.SlurmdStart, SlurmdNotBefore: TimeToProto(d.SlurmdNotBefore),
			NoBootAwaited: d.NoBootAwaited, LostJobs: d.Lost, BootKnown: d.BootKnown, Reboot: d.Reboot,
		}
		if d.SlurmdWait > 0 {
			out.SlurmdWait = durationpb.New(d.SlurmdWait)
		}
		if d.Kernel != nil {
			out.Kernel, out.Envelope = KernelToProto(*d.Kernel), d.Envelope
		}
		return &api.ConnectResponse{Message: &api.ConnectResponse_Desired{Desired: out}}
	case m.Answer != nil:
		return &api.ConnectResponse{Message: &api.ConnectResponse_JobEnding{
			JobEnding: &api.JobEndingAnswer{Query: m.Answer.Query, Kept: m.Answer.Kept}}}
	case m.Runs != nil:
		return runWishesToProto(m.Runs)
	}
	return &api.ConnectResponse{Message: &api.ConnectResponse_Snapshot{Snapshot: m.Snapshot}}
}

// ListNodes implements api.NodeServiceServer.
func (s *nodeService) ListNodes(ctx context.Context, _ *api.ListNodesRequest) (*api.ListNodesResponse, error) {
	response, whose := &api.ListNodesResponse{}, sightOf(ctx).whose(ctx)
	for _, n := range s.nodes.Nodes() {
		response.Nodes = append(response.Nodes, nodeToProto(n, whose))
	}
	return response, nil
}

// GetNode implements api.NodeServiceServer.
func (s *nodeService) GetNode(ctx context.Context, r *api.GetNodeRequest) (*api.GetNodeResponse, error) {
	n, err := s.nodes.Node(r.GetName())
	if err != nil {
		return nil, err
	}
	return &api.GetNodeResponse{Node: nodeToProto(n, sightOf(ctx).whose(ctx))}, nil
}

var nodePhases = map[string]api.NodePhase{
	"steady": api.NodePhase_NODE_PHASE_STEADY, "loading": api.NodePhase_NODE_PHASE_LOADING,
	"booting": api.NodePhase_NODE_PHASE_BOOTING, "failed": api.NodePhase_NODE_PHASE_FAILED,
}

// nodeToProto leaves the job out where it is not of whose the caller sees.
func nodeToProto(v controller.NodeView, whose *uint32) *api.Node {
	n := v.Node
	out := &api.Node{
		Name: n.Name, Phase: nodePhases[n.PhaseName()],
		RunningProfile: n.Running.Ref.Profile, RunningVersion: n.Running.Ref.Version,
		Release: n.Boot.Release, BuildId: n.Boot.BuildID, BootId: n.Boot.BootID, Attested: n.Running.Ref.Profile != "",
		DesiredProfile: n.Want.Profile, DesiredVersion: n.Want.Version, JobId: n.Owner.Job,
		Connected: v.Connected, LastSeen: TimeToProto(v.LastSeen), Kexecs: n.Kexecs, Inventory: InventoryToProto(n.Inventory),
	}
	if n.Failure != nil {
		out.Cause = n.Failure.Cause
	}
	if whose != nil && *whose != v.JobUID {
		out.JobId = 0
	}
	if s := v.Slurm; s.Name != "" {
		out.SlurmState, out.SlurmReason = s.Says(), s.Reason
		if s.By != "" {
			out.SlurmReason += " [" + s.By + "]"
		}
	}
	return out
}
