// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/api/convert"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/authz"
)

// policyService explains the authorizer's answers.
type policyService struct {
	api.UnimplementedPolicyServiceServer
	authorizer *authz.Authorizer
}

// TestPolicy implements api.PolicyServiceServer.
func (s *policyService) TestPolicy(ctx context.Context, r *api.TestPolicyRequest) (*api.TestPolicyResponse, error) {
	action := authz.Action(r.GetAction())
	if !slices.Contains(authz.Actions, action) {
		return nil, fmt.Errorf("action %q is none of %v: %w", r.GetAction(), authz.Actions, kb.ErrInvalid)
	}
	place, err := placeOf(r.GetFrom())
	if err != nil {
		return nil, err
	}
	user, err := s.user(ctx, CallerOf(ctx), r.GetUser())
	if err != nil {
		return nil, err
	}
	var job *authz.Job
	if r.Account != nil || r.Partition != nil {
		job = &authz.Job{Account: r.GetAccount(), Partition: r.GetPartition()}
	}
	a := s.authorizer.Test(ctx, user, place, action, r.GetObject(), job)
	return &api.TestPolicyResponse{Allowed: a.Allowed, Reason: a.Reason, Proviso: a.Proviso, Line: uint32(a.Line)}, nil
}

// user looks up whom a question is about; no name stands for the caller. Each lookup is a process on this host, so
// whether the caller may ask about others is decided before another's name is looked up.
func (s *policyService) user(ctx context.Context, caller Caller, name string) (kb.User, error) {
	uid := strconv.FormatUint(uint64(caller.UID), 10)
	own, err := s.authorizer.UserByName(ctx, uid)
	if name == "" || name == uid || err == nil && name == own.Name {
		return own, err
	}
	d, err := s.authorizer.Authorize(ctx, caller.subject(), authz.Inspect, name, nil)
	if err != nil {
		return kb.User{}, err
	}
	if !d.Allowed {
		return kb.User{}, fmt.Errorf("TestPolicy about others: %w: %s", kb.ErrDenied, d.Reason)
	}
	return s.authorizer.UserByName(ctx, name)
}

func placeOf(from string) (authz.Place, error) {
	if from == "" {
		return authz.Place{Local: true}, nil
	}
	address, err := netip.ParseAddr(from)
	if err != nil {
		return authz.Place{}, fmt.Errorf("%q is no address: %w", from, kb.ErrInvalid)
	}
	return authz.Place{Address: address.Unmap()}, nil
}

// GetPolicy implements api.PolicyServiceServer.
func (s *policyService) GetPolicy(context.Context, *api.GetPolicyRequest) (*api.GetPolicyResponse, error) {
	state := s.authorizer.State()
	response := &api.GetPolicyResponse{File: state.Policy.File, Text: state.Text, Digest: state.Digest, Since: convert.TimeToProto(state.Since)}
	if state.Err != nil {
		response.Problem = state.Err.Error()
	}
	return response, nil
}
