// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"strings"

	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/stats"
)

// Sample is one thing measured on one kernel, once or several times, with
// every value per operation of the workload unless its unit says otherwise.
type Sample struct {
	// Workload is the name of the workload in the catalog.
	Workload string `json:"workload"`
	// Part of a workload that counts several things apart, such as one system
	// call of many; empty where the workload is one thing.
	Part string `json:"part,omitempty"`
	// Metric is one of this package's Metric names.
	Metric string `json:"metric"`
	// Unit of each value, such as "instructions/operation".
	Unit string `json:"unit"`
	// Kernel is the name under which the kernel takes part in the comparison.
	Kernel string `json:"kernel"`
	// Exact says that the method repeats exactly: a difference is then a
	// difference, however small, and needs no test for significance.
	Exact bool `json:"exact"`
	// Values has one value per repetition.
	Values []float64 `json:"values"`
	// Size of the run, in the workload's own terms (operations asked for,
	// records, requests).
	Size int64 `json:"size"`
	// Seed of the run's data.
	Seed int64 `json:"seed"`
	// Operations that each repetition did between its markers.
	Operations int64 `json:"operations"`
}

// PerOperation says whether figures of the unit are of one operation; they are of
// the whole run otherwise.
func PerOperation(unit string) bool { return strings.HasSuffix(unit, "/operation") }

// Summary of the values.
func (s Sample) Summary() (stats.Summary, error) { return stats.Summarise(s.Values) }

// The metrics that the bench takes. Of all that a kernel is measured by, only
// KernelInstructions and WallTime decide.
const (
	KernelInstructions = "kernel_instructions"
	UserInstructions   = "user_instructions"
	RepIterations      = "kernel_rep_iterations"
	TakenBranches      = "kernel_taken_branches"
	Mispredictions     = "kernel_mispredictions"
	L1IMisses          = "kernel_l1i_misses"
	ITLBMisses         = "kernel_itlb_misses"
	L1DMisses          = "kernel_l1d_misses"
	DTLBMisses         = "kernel_dtlb_misses"
	// TextLines and TextPages are the cache lines and pages of kernel code of
	// which anything ran, in the whole run.
	TextLines = "kernel_text_lines"
	TextPages = "kernel_text_pages"
	WallTime  = "wall_time"
	// EmulatedTime is wall time of an emulator: what it takes for an
	// instruction is not what a processor takes.
	EmulatedTime = "emulated_time"
)
