// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
)

// Every method that is served has a rule, and no rule is for nothing.
func TestRulesCoverTheServer(t *testing.T) {
	server := NewServer(Options{})
	api.RegisterAllocationServiceServer(server, api.UnimplementedAllocationServiceServer{})
	api.RegisterNodeServiceServer(server, api.UnimplementedNodeServiceServer{})
	api.RegisterHardwareServiceServer(server, api.UnimplementedHardwareServiceServer{})
	api.RegisterRunServiceServer(server, api.UnimplementedRunServiceServer{})
	api.RegisterEventServiceServer(server, api.UnimplementedEventServiceServer{})
	served := map[string]bool{}
	for name, service := range server.GetServiceInfo() {
		for _, method := range service.Methods {
			full := "/" + name + "/" + method.Name
			served[full] = true
			if _, has := rules[full]; !has {
				t.Errorf("%s has no rule", full)
			}
		}
	}
	for method := range rules {
		if !served[method] {
			t.Errorf("the rule for %s is for nothing", method)
		}
	}
}

func TestNobodyCallsWhatHasNoRule(t *testing.T) {
	d := access{administrators: []uint32{0}}
	for _, caller := range []Caller{{Local: true}, {Local: true, UID: 5}, {Address: "n1"}} {
		if err := d.check("/x/Y", caller); !errors.Is(err, kb.ErrDenied) {
			t.Errorf("%v: %v", caller, err)
		}
	}
}

func TestStatusOf(t *testing.T) {
	for _, c := range []struct {
		err  error
		code codes.Code
	}{
		{nil, codes.OK},
		{kb.ErrInvalid, codes.InvalidArgument},
		{kb.ErrNotFound, codes.NotFound},
		{kb.ErrExists, codes.AlreadyExists},
		{kb.ErrQuarantined, codes.FailedPrecondition},
		{kb.ErrFailedPrecondition, codes.FailedPrecondition},
		{kb.ErrDenied, codes.PermissionDenied},
		{kb.ErrUnavailable, codes.Unavailable},
		{&kb.RetryableError{Wait: time.Second, Err: kb.ErrUnavailable}, codes.ResourceExhausted},
		{context.DeadlineExceeded, codes.DeadlineExceeded},
		{context.Canceled, codes.Canceled},
		{status.Error(codes.Aborted, "x"), codes.Aborted},
		{io.ErrUnexpectedEOF, codes.Internal},
		{os.ErrNotExist, codes.Internal},
	} {
		got := statusOf(c.err)
		if c.err != nil {
			got = statusOf(fmt.Errorf("node %q: %w", "n1", c.err))
		}
		if status.Code(got) != c.code {
			t.Errorf("%v became %v, want %v", c.err, got, c.code)
		}
	}
}
