// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/api/convert"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
)

// Hardware is what HardwareService serves.
type Hardware interface {
	Hardware() ([]*kb.LedgerRow, []kb.HardwareRule)
	SetHardwareRule(ctx context.Context, rule kb.HardwareRule) (kb.HardwareRule, error)
	RemoveHardwareRule(ctx context.Context, name string) error
}

// NewHardwareService serves the hardware ledger and its rules.
func NewHardwareService(h Hardware) api.HardwareServiceServer { return &hardwareService{hardware: h} }

type hardwareService struct {
	api.UnimplementedHardwareServiceServer
	hardware Hardware
}

// ListHardware implements api.HardwareServiceServer.
func (s *hardwareService) ListHardware(context.Context, *api.ListHardwareRequest) (*api.ListHardwareResponse, error) {
	rows, rules := s.hardware.Hardware()
	response := &api.ListHardwareResponse{}
	for _, row := range rows {
		response.Rows = append(response.Rows, convert.RowToProto(row))
	}
	for _, rule := range rules {
		response.Rules = append(response.Rules, convert.RuleToProto(rule))
	}
	return response, nil
}

// SetHardwareRule implements api.HardwareServiceServer.
func (s *hardwareService) SetHardwareRule(ctx context.Context, r *api.SetHardwareRuleRequest) (*api.SetHardwareRuleResponse, error) {
	rule := convert.RuleFromProto(r.GetRule())
	rule.Author = CallerOf(ctx).String()
	rule, err := s.hardware.SetHardwareRule(ctx, rule)
	if err != nil {
		return nil, err
	}
	return &api.SetHardwareRuleResponse{Rule: convert.RuleToProto(rule)}, nil
}

// RemoveHardwareRule implements api.HardwareServiceServer.
func (s *hardwareService) RemoveHardwareRule(ctx context.Context, r *api.RemoveHardwareRuleRequest) (*api.RemoveHardwareRuleResponse, error) {
	if err := s.hardware.RemoveHardwareRule(by(ctx, ""), r.GetName()); err != nil {
		return nil, err
	}
	return &api.RemoveHardwareRuleResponse{}, nil
}
