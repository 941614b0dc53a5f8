// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"math"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
)

var (
	outcomeToProto = map[kb.Outcome]api.Outcome{
		kb.OutcomeBenefit:   api.Outcome_OUTCOME_BENEFIT,
		kb.OutcomeNoBenefit: api.Outcome_OUTCOME_NO_BENEFIT,
		kb.OutcomeRefused:   api.Outcome_OUTCOME_REFUSED,
	}
	outcomeFromProto = inverse(outcomeToProto)

	sourceToProto = map[kb.ShareSource]api.ShareSource{
		kb.ShareOfWorkload: api.ShareSource_SHARE_SOURCE_WORKLOAD,
		kb.ShareOfRuns:     api.ShareSource_SHARE_SOURCE_RUNS,
	}
	sourceFromProto = inverse(sourceToProto)
)

// MeasurementToProto converts what was measured of a version; nil for nothing.
func MeasurementToProto(m *kb.Measurement) *api.Measurement {
	if m == nil {
		return nil
	}
	return &api.Measurement{
		Outcome: outcomeToProto[m.Outcome], Reason: m.Reason, Workload: m.Workload, Metric: m.Metric,
		ToSlim: gainToProto(m.ToSlim), ToStock: gainToProto(m.ToStock), ReportDigest: m.Report, MeasuredOn: m.MeasuredOn,
	}
}

// MeasurementFromProto is the inverse of MeasurementToProto.
func MeasurementFromProto(m *api.Measurement) *kb.Measurement {
	if m == nil {
		return nil
	}
	return &kb.Measurement{
		Outcome: outcomeFromProto[m.GetOutcome()], Reason: m.GetReason(), Workload: m.GetWorkload(), Metric: m.GetMetric(),
		ToSlim: gainFromProto(m.GetToSlim()), ToStock: gainFromProto(m.GetToStock()), Report: m.GetReportDigest(), MeasuredOn: m.GetMeasuredOn(),
	}
}

func gainToProto(g *kb.Gain) *api.Gain {
	if g == nil {
		return nil
	}
	return &api.Gain{
		Kernel: estimateToProto(&g.Kernel), MayBeChance: g.Chance, Unequal: g.Unequal,
		KernelShare: estimateToProto(g.Share), Whole: estimateToProto(g.Whole), ShareSource: sourceToProto[g.Source], ShareRuns: g.Runs,
	}
}

func gainFromProto(g *api.Gain) *kb.Gain {
	if g == nil {
		return nil
	}
	out := &kb.Gain{
		Kernel: kb.Estimate{Percent: math.NaN()}, // refused, unless it is given
		Chance: g.GetMayBeChance(), Unequal: g.GetUnequal(),
		Share: estimateFromProto(g.GetKernelShare()), Whole: estimateFromProto(g.GetWhole()), Source: sourceFromProto[g.GetShareSource()], Runs: g.GetShareRuns(),
	}
	if kernel := estimateFromProto(g.GetKernel()); kernel != nil {
		out.Kernel = *kernel
	}
	return out
}

func estimateToProto(e *kb.Estimate) *api.Estimate {
	if e == nil {
		return nil
	}
	return &api.Estimate{Percent: e.Percent, LowPercent: e.Low, HighPercent: e.High}
}

func estimateFromProto(e *api.Estimate) *kb.Estimate {
	if e == nil {
		return nil
	}
	return &kb.Estimate{Percent: e.GetPercent(), Low: e.GetLowPercent(), High: e.GetHighPercent()}
}
