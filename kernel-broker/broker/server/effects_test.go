// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/audit"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/authz"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/mtls"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/limit"
)

// brokenTape is a record that cannot be written, once it is broken.
type brokenTape struct {
	broken  bool
	entries []audit.Entry
	waited  []bool
}

func (b *brokenTape) Append(e audit.Entry, wait bool) (uint64, error) {
	if b.broken {
		return 0, fmt.Errorf("audit log: no room: %w", kb.ErrUnavailable)
	}
	b.entries, b.waited = append(b.entries, e), append(b.waited, wait)
	return uint64(len(b.entries)), nil
}

func (*brokenTape) HasSpace() bool { return true }

// recording is a gate with such a record, where nodes show certificates.
func recording(t *testing.T) (*interceptor, *brokenTape) {
	t.Helper()
	tape := &brokenTape{}
	quiet := slog.New(slog.DiscardHandler)
	g, err := authz.New(authz.Options{Always: []uint32{0}, Record: tape, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	tape.entries, tape.waited = nil, nil
	return &interceptor{log: quiet, authorizer: g, access: access{administrators: []uint32{0}, certificates: true}, quotas: newQuotas(DefaultLimits(), rootOnly, quiet)}, tape
}

func rootOnly(c Caller) bool { return c.Local && c.UID == 0 }

// mayCall is one who may call a method: a node where nodes may, else root.
func mayCall(method string) Caller {
	if rules[method].may == agents {
		return Caller{Address: "192.0.2.1:1000", Node: mtls.Peer{Name: mtls.Name{Role: mtls.Node, Cluster: "lab", Name: "n1"}}}
	}
	return Caller{Local: true}
}

// done reports whether a method's service was called, and what became of it.
func done(g *interceptor, method string, caller Caller) (called bool, err error) {
	ctx := withCaller(context.Background(), caller)
	err = g.pass(ctx, method, nil, func(context.Context, *call) error {
		called = true
		return nil
	})
	return called, err
}

// What changes something is done when it is on record, on the disk, or not at
// all; of that alone nodes' return to service is free, and it is counted.
func TestNothingIsChangedUnrecorded(t *testing.T) {
	seen := map[effect]int{}
	for method, r := range rules {
		seen[r.does]++
		g, tape := recording(t)
		if called, err := done(g, method, mayCall(method)); !called || err != nil {
			t.Errorf("%s with a record: called %v, %v", method, called, err)
		}
		if changing := r.does == changes || r.does == returns; changing && (len(tape.entries) != 2 || !tape.waited[0] || tape.entries[1].Of != 1) {
			t.Errorf("%s: %+v, waited for %v", method, tape.entries, tape.waited)
		}
		tape.broken = true
		called, err := done(g, method, mayCall(method))
		switch r.does {
		case changes:
			if called || status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "audit log") {
				t.Errorf("%s without a record: called %v, %v", method, called, err)
			}
		case returns, reads, reports:
			if !called || err != nil {
				t.Errorf("%s without a record: called %v, %v", method, called, err)
			}
		default:
			t.Errorf("%s: it is not said what it does", method)
		}
		if r.does == returns {
			tape.broken = false
			if err := g.authorizer.NoteBroker("stop", ""); err != nil {
				t.Error(err)
			}
			if sum := tape.entries[len(tape.entries)-2]; sum.Kind != authz.KindUnrecorded || sum.Unrecorded != 1 {
				t.Errorf("%s was not counted: %+v", method, sum)
			}
		}
	}
	if seen[changes] < 15 || seen[returns] != 2 || seen[reports] != 2 {
		t.Errorf("%v", seen)
	}
}

// A method that is taken for one that changes nothing is called like one.
func TestReadsAreCalledLikeReads(t *testing.T) {
	for method, r := range rules {
		name := nameOf(method)
		like := false
		for _, prefix := range []string{"Get", "List", "Watch", "Check", "Test", "Fetch", "ServerReflectionInfo"} {
			like = like || strings.HasPrefix(name, prefix)
		}
		if like != (r.does == reads) {
			t.Errorf("%s is taken for one that reads: %v", name, r.does == reads)
		}
	}
}

// Before a change is one record and after it another, so nobody whom the policy
// or a token lets may cause changes without end. None of them is left out.
func TestChangesAreLimited(t *testing.T) {
	g, tape := recording(t)
	node := mayCall(api.TrustService_Renew_FullMethodName)
	limits := DefaultLimits()
	limits.NodeRate, limits.NodeBurst, limits.Changes = 1e6, 1e6, limit.Rate{PerSecond: 0.01, Burst: 50}
	g.quotas = newQuotas(limits, rootOnly, slog.New(slog.DiscardHandler))
	made := 0
	var last error
	for range limits.Changes.Burst + 10 {
		called, err := done(g, api.TrustService_Renew_FullMethodName, node)
		if called {
			made++
		} else {
			last = err
		}
	}
	if made != limits.Changes.Burst || status.Code(last) != codes.ResourceExhausted {
		t.Errorf("%d changes, then %v", made, last)
	}
	decisions := 0
	for _, e := range tape.entries {
		if e.Kind == authz.KindDecision && e.Reason == "for node agents" {
			decisions++
		}
	}
	if decisions != made {
		t.Errorf("%d records of %d changes", decisions, made)
	}
}

// What is no valid request changes nothing, and is not waited for.
func TestInvalidChangesAreNotWaitedFor(t *testing.T) {
	g, tape := recording(t)
	ctx := withCaller(t.Context(), Caller{Address: "192.0.2.1:1000"})
	_, err := g.unary(ctx, &api.EnrolRequest{Node: strings.Repeat("<", 4000)}, &grpc.UnaryServerInfo{FullMethod: api.TrustService_Enrol_FullMethodName},
		func(context.Context, any) (any, error) { return nil, errors.New("called") })
	if status.Code(err) != codes.InvalidArgument || len(tape.entries) != 1 || tape.waited[0] || tape.entries[0].Outcome == "" {
		t.Errorf("%v: %+v, waited %v", err, tape.entries, tape.waited)
	}
}

// A peer that went away was not refused.
func TestDisconnectsAreNotRecorded(t *testing.T) {
	g, tape := recording(t)
	n := &network{authorizer: g.authorizer, log: g.log, sampler: limit.NewLogSampler(logRate)}
	for _, c := range []struct {
		err     error
		records int
	}{{fmt.Errorf("x: %w", context.DeadlineExceeded), 1}, {fmt.Errorf("x: %w", io.EOF), 0}} {
		tape.entries = nil
		n.refused(Caller{Address: "192.0.2.1:1000"}, c.err)
		if len(tape.entries) != c.records {
			t.Errorf("%v: %+v", c.err, tape.entries)
		}
	}
}
