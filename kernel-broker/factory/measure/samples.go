// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/verdict"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/workload"
)

// metrics are the figures of a region, each per operation unless its unit says
// what the whole region has.
var metrics = []struct {
	name, unit string
	of         func(Region) uint64
}{
	{verdict.KernelInstructions, "instructions/operation", func(r Region) uint64 { return r.Kernel.Instructions }},
	{verdict.UserInstructions, "instructions/operation", func(r Region) uint64 { return r.User.Instructions }},
	{verdict.RepIterations, "iterations/operation", func(r Region) uint64 { return r.Kernel.RepIterations }},
	{verdict.TakenBranches, "branches/operation", func(r Region) uint64 { return r.Kernel.TakenBranches }},
	{verdict.Mispredictions, "mispredictions/operation", func(r Region) uint64 { return r.Kernel.Mispredictions }},
	{verdict.L1IMisses, "misses/operation", func(r Region) uint64 { return r.Kernel.L1IMisses }},
	{verdict.ITLBMisses, "misses/operation", func(r Region) uint64 { return r.Kernel.ITLBMisses }},
	{verdict.L1DMisses, "misses/operation", func(r Region) uint64 { return r.Kernel.L1DMisses }},
	{verdict.DTLBMisses, "misses/operation", func(r Region) uint64 { return r.Kernel.DTLBMisses }},
	{verdict.TextLines, "lines", func(r Region) uint64 { return r.TextLines }},
	{verdict.TextPages, "pages", func(r Region) uint64 { return r.TextPages }},
}

// Measurement of a kernel under one workload.
type Measurement struct {
	Kernel   string
	Workload string
	// Samples have a metric of a region each; a region is a part of the
	// workload, unless it is all of it.
	Samples []verdict.Sample
	// Mitigations of the processor's flaws, as the kernel reported them.
	Mitigations []string
	// Runs are the regions of each repetition.
	Runs [][]Region
}

// samples turns the runs into samples: one value for each run.
func (m *Measurement) samples(w workload.Workload, p workload.Parameters) {
	like := verdict.Sample{
		Workload: w.Name, Kernel: m.Kernel, Exact: w.Exact(), Size: p.Size, Seed: p.Seed,
	}
	for i, first := range m.Runs[0] {
		part := make([]Region, len(m.Runs))
		for j, run := range m.Runs {
			part[j] = run[i]
		}
		if len(m.Runs[0]) > 1 {
			like.Part = first.Name
		}
		m.Samples = append(m.Samples, of(like, part)...)
	}
}

// of takes every metric of a region in all of its repetitions.
func of(like verdict.Sample, regions []Region) []verdict.Sample {
	like.Operations = regions[0].Operations
	samples := make([]verdict.Sample, 0, len(metrics))
	for _, metric := range metrics {
		like.Metric, like.Unit = metric.name, metric.unit
		like.Values = make([]float64, 0, len(regions))
		for _, region := range regions {
			value := float64(metric.of(region))
			if verdict.PerOperation(metric.unit) {
				value /= float64(region.Operations)
			}
			like.Values = append(like.Values, value)
		}
		samples = append(samples, like)
	}
	return samples
}
