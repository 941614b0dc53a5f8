// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"

	"google.golang.org/grpc"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
)

// ownNodeOnly keeps a node from speaking for another one: what a message says
// of its sender is compared with the certificate. Who has shown none passes;
// whether that will do is the door's business.
func ownNodeOnly(server any, s grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	if CallerOf(s.Context()).Node.Name.IsZero() {
		return handle(server, s)
	}
	return handle(server, claimStream{s})
}

type claimStream struct{ grpc.ServerStream }

func (s claimStream) RecvMsg(message any) error {
	if err := s.ServerStream.RecvMsg(message); err != nil {
		return err
	}
	return statusOf(checkClaim(CallerOf(s.Context()), message))
}

// ownNode is ownNodeOnly for a single request.
func ownNode(ctx context.Context, request any) error {
	if caller := CallerOf(ctx); !caller.Node.Name.IsZero() {
		return checkClaim(caller, request)
	}
	return nil
}

func checkClaim(caller Caller, message any) error {
	claimed, claims := claimOf(message)
	if own := caller.Node.Name.Name; claims && claimed != own {
		return fmt.Errorf("node %q speaks for node %q: %w", own, claimed, kb.ErrDenied)
	}
	return nil
}

// claimOf returns the node that a message says it comes from.
func claimOf(message any) (node string, claims bool) {
	switch m := message.(type) {
	case *api.ConnectRequest:
		return m.GetHello().GetNode(), m.GetHello() != nil
	case *api.UploadRunFileRequest:
		return m.GetNode(), m.GetFile() != nil
	case *api.GetRunFileRequest:
		return m.GetNode(), true
	case *api.DeliverRunRequest:
		return m.GetNode(), true
	}
	return "", false
}
