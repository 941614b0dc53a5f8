// SPDX-License-Identifier: Apache-2.0

package kernelreport

import "github.com/kernelbroker/kernelbroker/kernel-broker/factory/build"

// Profile is how the compiler used a kernel's profile.
type Profile struct {
	// Objects that were compiled with it.
	Objects int `json:"objects"`
	// Excluded objects were compiled without it, though they have one.
	Excluded []build.Exclusion `json:"excluded,omitempty"`
	// Mismatched functions ("fs/namei.o: path_openat") have another flow than
	// the one that was counted, and were compiled without counters. Moved ones
	// stand in another place, and were compiled with them. Missing are objects
	// without a profile.
	Mismatched []string `json:"mismatched,omitempty"`
	Moved      []string `json:"moved,omitempty"`
	Missing    []string `json:"missing,omitempty"`
}

// Slimming sums up what became of the options.
type Slimming struct {
	// Proposed options, of which the removed ones are left; the others turned
	// out to be needed.
	Proposed int `json:"proposed"`
	// Configurations that kconfig was asked about, and kernels that were
	// built, booted and put to work to find that out.
	Configurations int `json:"configurations"`
	Kernels        int `json:"kernels"`
	// Objects and bytes of code that are not built any more.
	ObjectsGone int   `json:"objects_gone"`
	CodeGone    int64 `json:"code_gone"`
	// Function text of the whole kernel; 0 is not known.
	TextBefore int64 `json:"text_before,omitempty"`
	TextAfter  int64 `json:"text_after,omitempty"`
	// Missing are drivers that nodes have devices for and the kernel never had.
	Missing []MissingDriver `json:"missing_drivers,omitempty"`
	// Runs of jobs that were considered beside the workload.
	Runs []SlimmingRun `json:"runs,omitempty"`
}

// SlimmingRun is a profiling run of a job, and what became of what the job was
// seen to use of its kernel.
type SlimmingRun struct {
	Run uint64 `json:"run"`
	// Results by node, and the releases of the kernels that the job ran on.
	Results  []build.Part `json:"results"`
	Releases []string     `json:"releases,omitempty"`
	// Named are the functions and system calls that it used; Found those that the
	// kernel has. Unknown are the first of those that it has not.
	Named   int      `json:"named"`
	Found   int      `json:"found"`
	Unknown []string `json:"unknown,omitempty"`
	// Objects that the workload did not need, and the job did.
	Objects []string `json:"objects,omitempty"`
	// Refused are system calls, and Lacking file systems, that the job used and no
	// fragment of the recipe asks for.
	Refused []string `json:"refused_calls,omitempty"`
	Lacking []string `json:"lacking_file_systems,omitempty"`
}

// MissingDriver is a driver that a node asks for.
type MissingDriver struct {
	Node   string `json:"node"`
	Module string `json:"module"`
	Device string `json:"device,omitempty"`
}

// Results is how many there are of all runs.
func (s Slimming) Results() int {
	n := 0
	for _, r := range s.Runs {
		n += len(r.Results)
	}
	return n
}

// Cost is what one step of the build took.
type Cost struct {
	Step    string  `json:"step"`
	Seconds float64 `json:"seconds"`
	// Bytes of its result.
	Bytes int64 `json:"bytes"`
	// Before says that it was done for an earlier build, and taken from there.
	Before bool `json:"before,omitempty"`
	// Plain marks what a plain build of the kernel takes too: its source, its
	// configuration, and one compilation.
	Plain bool `json:"plain,omitempty"`
}

// CostSum adds up the seconds of all steps, of those that were taken from
// before, and of those that are a plain build.
func CostSum(steps []Cost) (all, before, plain float64) {
	for _, step := range steps {
		all += step.Seconds
		if step.Before {
			before += step.Seconds
		}
		if step.Plain {
			plain += step.Seconds
		}
	}
	return all, before, plain
}
