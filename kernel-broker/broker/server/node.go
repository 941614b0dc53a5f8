// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/api/convert"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/controller"
)

// Nodes is what NodeService serves.
type Nodes interface {
	// Turn returns how long a node has to wait before it may attach.
	Turn(node string) time.Duration
	Attach(node string, boot kb.Boot, inventory kb.Inventory, slurmd bool) (*controller.Session, error)
	// Rhythm is what agents are told with the answer to a heartbeat. It does not wait.
	Rhythm() controller.Rhythm
	Nodes() []kb.NodeView
	Node(name string) (kb.NodeView, error)
}

// Term is the time for which this broker acts. What it tells agents carries the number of that.
type Term interface {
	Epoch() uint64
	// MayAct says why this broker may tell agents nothing now.
	MayAct() error
}

// NewNodeService serves agents, and those who ask for nodes.
func NewNodeService(n Nodes, term Term) api.NodeServiceServer {
	return &nodeService{nodes: n, term: term}
}

type nodeService struct {
	api.UnimplementedNodeServiceServer
	nodes Nodes
	term  Term
}

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
	h := convert.HelloFromProto(hello)
	for _, check := range []func() error{func() error { return kb.ValidateNodeName(h.Node) }, h.Boot.Validate, h.Inventory.Validate} {
		if err := check(); err != nil {
			return fmt.Errorf("node %q: %w", h.Node, err)
		}
	}
	if err := s.term.MayAct(); err != nil {
		return err
	}
	if err := s.turn(stream.Context(), h.Node); err != nil {
		return err
	}
	session, err := s.nodes.Attach(h.Node, h.Boot, h.Inventory, h.SlurmdRunning)
	if err != nil {
		return err
	}
	defer session.Detach()
	session.SetVersion(convert.Text(h.AgentVersion))
	b := newBeats()
	defer b.watch.Stop()
	received := make(chan error, 1)
	go func() { received <- receive(stream, session, b) }()
	for {
		select {
		case <-b.came:
			if s.term.MayAct() != nil {
				continue // the agent leaves a broker that goes on like that
			}
			if err := s.send(stream, b.answer(s.nodes.Rhythm())); err != nil {
				return err
			}
		case <-b.watch.Silent():
			return status.Errorf(codes.Unavailable, "node %q has said nothing for %v", h.Node, b.limit())
		case m := <-session.Messages():
			// Of a broker that was stopped and goes on, messages may wait that are no longer true.
			if err := s.term.MayAct(); err != nil {
				return err
			}
			if err := s.send(stream, messageToProto(m)); err != nil {
				return err
			}
		case <-session.Replaced():
			return status.Errorf(codes.Aborted, "a newer stream of node %q took over", hello.GetNode())
		case err := <-received:
			return err
		}
	}
}

// send gives a message the epoch.
func (s *nodeService) send(stream api.NodeService_ConnectServer, r *api.ConnectResponse) error {
	r.Epoch = s.term.Epoch()
	return stream.Send(r)
}

func receive(stream api.NodeService_ConnectServer, session *controller.Session, b *beats) error {
	for {
		b.watch.Wait()
		m, err := stream.Recv()
		b.watch.Heard()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		switch m := m.GetMessage().(type) {
		case *api.ConnectRequest_Report:
			report, err := convert.SwitchReportFromProto(m.Report)
			if err != nil {
				return err
			}
			session.Report(report)
		case *api.ConnectRequest_Slurmd:
			session.Slurmd(convert.SlurmdReportFromProto(m.Slurmd))
		case *api.ConnectRequest_JobEnding:
			session.Ending(m.JobEnding.GetQuery(), m.JobEnding.GetJobId())
		case *api.ConnectRequest_Run:
			report, err := convert.RunReportFromProto(m.Run)
			if err != nil {
				return err
			}
			session.RunReport(m.Run.GetRunId(), report, m.Run.GetFigures())
		case *api.ConnectRequest_Heartbeat:
			if number := m.Heartbeat.GetNumber(); number != 0 {
				session.Heartbeat(number)
			} else if m.Heartbeat.GetEvery() != nil {
				b.heard(m.Heartbeat.GetEvery().AsDuration())
			}
		default:
			return fmt.Errorf("message %T after the hello: %w", m, kb.ErrInvalid)
		}
	}
}

func messageToProto(m *controller.Message) *api.ConnectResponse {
	switch {
	case m.Desired != nil:
		response := convert.DesiredToProto(m.Desired)
		response.GetDesired().AnswersHeartbeats = true
		return response
	case m.Heartbeat != 0:
		return &api.ConnectResponse{Message: &api.ConnectResponse_Heartbeat{Heartbeat: &api.Heartbeat{Number: m.Heartbeat}}}
	case m.Answer != nil:
		return &api.ConnectResponse{Message: &api.ConnectResponse_JobEnding{
			JobEnding: &api.JobEndingAnswer{Query: m.Answer.Query, Kept: m.Answer.Kept}}}
	case m.Runs != nil:
		return convert.DesiredRunsToProto(m.Runs)
	}
	return &api.ConnectResponse{Message: &api.ConnectResponse_Snapshot{Snapshot: m.Snapshot}}
}

// ListNodes implements api.NodeServiceServer.
func (s *nodeService) ListNodes(ctx context.Context, r *api.ListNodesRequest) (*api.ListNodesResponse, error) {
	response, whose := &api.ListNodesResponse{}, visibilityOf(ctx).whose(ctx)
	for _, n := range s.nodes.Nodes() {
		node := nodeToProto(n, whose)
		if r.GetBrief() {
			node.Inventory, node.Hardware = nil, nil
		}
		response.Nodes = append(response.Nodes, node)
	}
	return response, nil
}

// GetNode implements api.NodeServiceServer.
func (s *nodeService) GetNode(ctx context.Context, r *api.GetNodeRequest) (*api.GetNodeResponse, error) {
	n, err := s.nodes.Node(r.GetName())
	if err != nil {
		return nil, err
	}
	return &api.GetNodeResponse{Node: nodeToProto(n, visibilityOf(ctx).whose(ctx))}, nil
}

// nodeToProto leaves out a job that the caller may not see.
func nodeToProto(v kb.NodeView, whose *uint32) *api.Node {
	out := convert.NodeToProto(v)
	if whose != nil && *whose != v.JobUID {
		out.JobId = 0
		out.SlurmReason, _, _ = strings.Cut(out.SlurmReason, kb.ReasonForJob)
	}
	return out
}
