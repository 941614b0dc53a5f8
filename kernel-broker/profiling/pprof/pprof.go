// SPDX-License-Identifier: Apache-2.0

// Package pprof writes a call graph in the format of the pprof tool, which
// many viewers read. The format is pprof's own affair, so its library writes
// it.
package pprof

import (
	"fmt"
	"io"

	"github.com/google/pprof/profile"

	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
)

// Write a graph, compressed, as pprof expects it.
func Write(to io.Writer, graph *profiling.CallGraph) error {
	p := convert(graph)
	if err := p.CheckValid(); err != nil {
		return fmt.Errorf("pprof: %w", err)
	}
	if err := p.Write(to); err != nil {
		return fmt.Errorf("pprof: %w", err)
	}
	return nil
}

func convert(graph *profiling.CallGraph) *profile.Profile {
	period := int64(graph.PeriodNS)
	p := &profile.Profile{
		SampleType: []*profile.ValueType{{Type: "samples", Unit: "count"}, {Type: "kernel", Unit: "nanoseconds"}},
		PeriodType: &profile.ValueType{Type: "cpu", Unit: "nanoseconds"},
		Period:     period,
	}
	places := map[string]*profile.Location{}
	for _, stack := range graph.Stacks {
		sample := &profile.Sample{Value: []int64{int64(stack.Samples), int64(stack.Samples) * period}}
		// pprof has the innermost first.
		for i := len(stack.Frames) - 1; i >= 0; i-- {
			sample.Location = append(sample.Location, place(p, places, stack.Frames[i]))
		}
		p.Sample = append(p.Sample, sample)
	}
	return p
}

func place(p *profile.Profile, places map[string]*profile.Location, name string) *profile.Location {
	if known := places[name]; known != nil {
		return known
	}
	id := uint64(len(places) + 1)
	function := &profile.Function{ID: id, Name: name, SystemName: name}
	location := &profile.Location{ID: id, Line: []profile.Line{{Function: function}}}
	places[name] = location
	p.Function = append(p.Function, function)
	p.Location = append(p.Location, location)
	return location
}
