// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/stats/quantile"
)

// HardwareFromProto converts what a node shows of its hardware.
func HardwareFromProto(h *api.Hardware) kb.Hardware {
	return kb.Hardware{Board: h.GetBoard(), Firmware: h.GetFirmware(), NIC: h.GetNic()}
}

// HardwareToProto is the inverse of HardwareFromProto; nil for none.
func HardwareToProto(h kb.Hardware) *api.Hardware {
	if h == (kb.Hardware{}) {
		return nil
	}
	return &api.Hardware{Board: h.Board, Firmware: h.Firmware, Nic: h.NIC}
}

var (
	wayToProto = map[kb.Way]api.BootWay{
		kb.WaySwitch: api.BootWay_BOOT_WAY_SWITCH, kb.WayReturn: api.BootWay_BOOT_WAY_RETURN,
		kb.WayReboot: api.BootWay_BOOT_WAY_REBOOT, kb.WayReset: api.BootWay_BOOT_WAY_RESET,
	}
	kexecToProto = map[kb.RuleKexec]api.RuleKexec{
		kb.KexecNever: api.RuleKexec_RULE_KEXEC_NEVER, kb.KexecNoReturn: api.RuleKexec_RULE_KEXEC_NO_RETURN,
	}
)

// RuleToProto converts a rule.
func RuleToProto(r kb.HardwareRule) *api.HardwareRule {
	return &api.HardwareRule{Name: r.Name, Node: r.Node, Board: r.Board, Firmware: r.Firmware, Nic: r.NIC, Kernel: r.Kernel,
		Kexec: kexecToProto[r.Kexec], By: wayToProto[r.By], Once: r.Once, Reason: r.Reason, Author: r.Author, At: TimeToProto(r.At)}
}

// RuleFromProto converts a rule that somebody sets; who and when is not taken from it.
func RuleFromProto(r *api.HardwareRule) kb.HardwareRule {
	rule := kb.HardwareRule{Name: r.GetName(), Node: r.GetNode(), Board: r.GetBoard(), Firmware: r.GetFirmware(), NIC: r.GetNic(),
		Kernel: r.GetKernel(), Once: r.GetOnce(), Reason: Text(r.GetReason())}
	for kexec, message := range kexecToProto {
		if message == r.GetKexec() {
			rule.Kexec = kexec
		}
	}
	for way, message := range wayToProto {
		if message == r.GetBy() {
			rule.By = way
		}
	}
	return rule
}

// RowToProto converts a row of the hardware ledger.
func RowToProto(r *kb.LedgerRow) *api.HardwareRow {
	out := &api.HardwareRow{Hardware: HardwareToProto(r.Hardware), Profile: r.Kernel.Profile, Version: r.Kernel.Version, Way: wayToProto[r.Way],
		Tries: r.Tries, Successes: r.Successes, FailedInARow: r.Streak, First: TimeToProto(r.First), Last: TimeToProto(r.Last),
		Phases: phaseTimes(r.Times())}
	if f := r.LastFailure; f != nil {
		out.FailedNode, out.FailedCause, out.FailedAt = f.Node, f.Cause, TimeToProto(f.At)
	}
	return out
}

// phaseTimes summarises boots by phase.
func phaseTimes(boots []kb.BootTimes) []*api.PhaseTimes {
	var out []*api.PhaseTimes
	for i, phase := range kb.UnknownTimes().Phases() {
		var known []time.Duration
		for _, boot := range boots {
			if took := boot.Phases()[i].Took; took >= 0 {
				known = append(known, took)
			}
		}
		if len(known) > 0 {
			out = append(out, &api.PhaseTimes{Phase: phase.Phase, Count: uint32(len(known)),
				Median: durationpb.New(quantile.NearestRank(known, 0.5)), P95: durationpb.New(quantile.NearestRank(known, 0.95))})
		}
	}
	return out
}
