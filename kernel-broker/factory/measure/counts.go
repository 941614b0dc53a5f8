// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/verdict"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/workload"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/strictjson"
)

// Counts of one side, user or kernel, of a region.
type Counts struct {
	Instructions uint64 `json:"instructions"`
	// RepIterations are those of repeating string instructions, which an emulator
	// executes one by one and a processor does not. Strings is how often such an
	// instruction begins, which Instructions counts too, and StringBytes what its
	// iterations move, read or compare.
	RepIterations uint64 `json:"rep_iterations"`
	Strings       uint64 `json:"strings"`
	StringBytes   uint64 `json:"string_bytes"`
	// Branches are conditional ones; TakenBranches are of all kinds.
	Branches      uint64 `json:"branches"`
	TakenBranches uint64 `json:"taken_branches"`
	// By the models of a gshare predictor, of caches of 32 KiB for instructions
	// and for data, and of translation buffers of 64 pages for both.
	Mispredictions uint64 `json:"mispredictions"`
	L1IMisses      uint64 `json:"l1i_misses"`
	ITLBMisses     uint64 `json:"itlb_misses"`
	L1DMisses      uint64 `json:"l1d_misses"`
	DTLBMisses     uint64 `json:"dtlb_misses"`
}

func (c Counts) weighed() float64 { return verdict.Weigh(c.Instructions, c.Strings, c.StringBytes) }

// Region is what was counted between two markers.
type Region struct {
	Name       string `json:"-"`
	Operations int64  `json:"-"`
	Marker     int    `json:"marker"`
	User       Counts `json:"user"`
	Kernel     Counts `json:"kernel"`
	// TextLines of 64 bytes and TextPages of 4 KiB hold the kernel's code that
	// ran.
	TextLines uint64 `json:"text_lines"`
	TextPages uint64 `json:"text_pages"`
}

// countsFormat is the plugin's, of the file that it writes.
const countsFormat = 3

type countsDocument struct {
	Format     int      `json:"format"`
	Unended    int      `json:"unended"`
	Unbalanced uint64   `json:"unbalanced"`
	Lost       uint64   `json:"lost"`
	Regions    []Region `json:"regions"`
}

// readCounts reads the plugin's file and puts to each region what the workload
// says of it. Markers that do not fit together make all of it worthless.
func readCounts(path string, said []workload.Region) ([]Region, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("counts: %w", err)
	}
	regions, err := parseCounts(data, said)
	if err != nil {
		return nil, fmt.Errorf("counts %q: %w", path, err)
	}
	return regions, nil
}

func parseCounts(data []byte, said []workload.Region) ([]Region, error) {
	var file countsDocument
	if err := strictjson.Decode(data, &file); err != nil {
		return nil, err
	}
	switch {
	case file.Format != countsFormat:
		return nil, fmt.Errorf("format %d, only %d is known", file.Format, countsFormat)
	case !whole(data, file):
		return nil, errors.New("a key is missing, stands twice or at another place")
	case file.Unended > 0 || file.Unbalanced > 0 || file.Lost > 0:
		return nil, fmt.Errorf("%d regions without an end, %d markers out of order, %d regions lost",
			file.Unended, file.Unbalanced, file.Lost)
	case len(file.Regions) != len(said):
		return nil, fmt.Errorf("%d regions, the workload speaks of %d", len(file.Regions), len(said))
	}
	for i := range file.Regions {
		region := &file.Regions[i]
		if region.Marker != said[i].Marker {
			return nil, fmt.Errorf("region %d is of marker %d, the workload says %d",
				i+1, region.Marker, said[i].Marker)
		}
		region.Name, region.Operations = said[i].Name, said[i].Operations
	}
	return file.Regions, nil
}

// whole says that the text has every key once, as the plugin writes it: a count
// that is missing would be read as 0.
func whole(text []byte, file countsDocument) bool {
	var compact bytes.Buffer
	again, err := json.Marshal(file)
	return err == nil && json.Compact(&compact, text) == nil && bytes.Equal(compact.Bytes(), again)
}

// metrics are the figures of a region, each per operation unless its unit says
// what the whole region has.
var metrics = []struct {
	name, unit string
	of         func(Region) float64
}{
	{verdict.KernelWeighed, "instructions/operation", func(r Region) float64 { return r.Kernel.weighed() }},
	{verdict.UserWeighed, "instructions/operation", func(r Region) float64 { return r.User.weighed() }},
	{verdict.KernelInstructions, "instructions/operation", func(r Region) float64 { return float64(r.Kernel.Instructions) }},
	{verdict.UserInstructions, "instructions/operation", func(r Region) float64 { return float64(r.User.Instructions) }},
	{verdict.Strings, "strings/operation", func(r Region) float64 { return float64(r.Kernel.Strings) }},
	{verdict.StringBytes, "bytes/operation", func(r Region) float64 { return float64(r.Kernel.StringBytes) }},
	{verdict.TakenBranches, "branches/operation", func(r Region) float64 { return float64(r.Kernel.TakenBranches) }},
	{verdict.Mispredictions, "mispredictions/operation", func(r Region) float64 { return float64(r.Kernel.Mispredictions) }},
	{verdict.L1IMisses, "misses/operation", func(r Region) float64 { return float64(r.Kernel.L1IMisses) }},
	{verdict.ITLBMisses, "misses/operation", func(r Region) float64 { return float64(r.Kernel.ITLBMisses) }},
	{verdict.L1DMisses, "misses/operation", func(r Region) float64 { return float64(r.Kernel.L1DMisses) }},
	{verdict.DTLBMisses, "misses/operation", func(r Region) float64 { return float64(r.Kernel.DTLBMisses) }},
	{verdict.TextLines, "lines", func(r Region) float64 { return float64(r.TextLines) }},
	{verdict.TextPages, "pages", func(r Region) float64 { return float64(r.TextPages) }},
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
func (m *Measurement) samples(w workload.Workload, p workload.Parameters) error {
	if err := m.alike(); err != nil {
		return fmt.Errorf("workload %q on kernel %q: %w", m.Workload, m.Kernel, err)
	}
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
	return nil
}

// alike refuses repetitions of which one had other regions than the first.
func (m *Measurement) alike() error {
	first := m.Runs[0]
	for i, run := range m.Runs[1:] {
		if len(run) != len(first) {
			return fmt.Errorf("repetition %d has %d regions, the first has %d", i+2, len(run), len(first))
		}
		for j, region := range run {
			if region.Name != first[j].Name {
				return fmt.Errorf("region %d of repetition %d is %q, not %q", j+1, i+2, region.Name, first[j].Name)
			}
		}
	}
	return nil
}

// of takes every metric of a region in all of its repetitions.
func of(like verdict.Sample, regions []Region) []verdict.Sample {
	like.Operations = regions[0].Operations
	samples := make([]verdict.Sample, 0, len(metrics))
	for _, metric := range metrics {
		like.Metric, like.Unit = metric.name, metric.unit
		like.Values = make([]float64, 0, len(regions))
		for _, region := range regions {
			value := metric.of(region)
			if verdict.PerOperation(metric.unit) {
				value /= float64(region.Operations)
			}
			like.Values = append(like.Values, value)
		}
		samples = append(samples, like)
	}
	return samples
}
