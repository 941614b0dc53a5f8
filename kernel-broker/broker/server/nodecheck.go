// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"

	"google.golang.org/grpc"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
)

// checkNode compares the node that a message names as its sender with the caller's
// certificate. Callers without one pass: access decides whether they may call.
func checkNode(server any, s grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	if CallerOf(s.Context()).Node.Name.IsZero() {
		return handle(server, s)
	}
	return handle(server, nodeCheckedStream{s})
}

type nodeCheckedStream struct{ grpc.ServerStream }

func (s nodeCheckedStream) RecvMsg(message any) error {
	if err := s.ServerStream.RecvMsg(message); err != nil {
		return err
	}
	return statusOf(compareNode(CallerOf(s.Context()), message))
}

// checkOwnNode is checkNode for a single request.
func checkOwnNode(ctx context.Context, request any) error {
	if caller := CallerOf(ctx); !caller.Node.Name.IsZero() {
		return compareNode(caller, request)
	}
	return nil
}

func compareNode(caller Caller, message any) error {
	sender, named := senderOf(message)
	if own := caller.Node.Name.Name; named && sender != own {
		return fmt.Errorf("node %q speaks for node %q: %w", own, sender, kb.ErrDenied)
	}
	return nil
}

// senderOf returns the node that a message says it comes from.
func senderOf(message any) (node string, named bool) {
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
