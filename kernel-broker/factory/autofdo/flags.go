// SPDX-License-Identifier: Apache-2.0

package autofdo

import (
	"fmt"
	"maps"
	"slices"
)

// What the compiler and the linker are told beside the profile (ADR 0054).
var (
	// Code without a sample is cold, and LLVM optimises cold code for size. Other work of the same application, for which there are no
	// samples, pays for that: so cold code is optimised as code of unknown use is.
	coldAtSpeed = map[string]int{"pgso": 0, "inlinecold-threshold": 225, "inline-cold-callsite-threshold": 225}
	// How much larger a function may be than usual that is imported from another file for a hot call. The kernel's makefile allows 5
	// instructions, so that LLVM's own factor of 10 leaves most hot calls where they are.
	hotImports = map[string]int{"import-hot-multiplier": 200}
)

// Sampling is how branches become a profile, and how a kernel is compiled with it.
type Sampling struct {
	// CallTargets of indirect calls are in the profile.
	CallTargets bool `json:"call_targets"`
	// AtLink has the profile used at the link, too, where ThinLTO inlines over the borders of files.
	AtLink bool `json:"at_link"`
	// Probes mark blocks in place of lines.
	Probes bool `json:"probes"`
	// Level of the optimiser, O2 if empty.
	Level string `json:"level,omitempty"`
	// LLVM has more options of the optimiser.
	LLVM map[string]int `json:"llvm,omitempty"`
}

// Marks is what tells the compiler of which code a sample is.
func (s Sampling) Marks() string {
	if s.Probes {
		return "probes"
	}
	return "lines"
}

// MarkFlags have the compiler say which line or probe each instruction is of. DWARF 5 gave an empty profile with LLVM 19.
// Probes ask for unique names of static functions, which system calls without arguments do not survive.
func (s Sampling) MarkFlags() []string {
	flags := []string{"-gmlt", "-gdwarf-4", "-fdebug-info-for-profiling"}
	if s.Probes {
		flags = append(flags, "-fpseudo-probe-for-profiling", "-fno-unique-internal-linkage-names")
	}
	return flags
}

// UseFlags have the compiler use a profile. It is taken to be whole: a function
// without a sample is cold.
func (s Sampling) UseFlags(profile string) []string {
	flags := []string{"-fprofile-sample-use=" + profile, "-fprofile-sample-accurate"}
	if s.Level != "" {
		flags = append(flags, "-"+s.Level)
	}
	return append(flags, s.llvm(coldAtSpeed)...)
}

// LinkFlags have the linker use it.
func (s Sampling) LinkFlags(profile string) []string {
	var flags []string
	if s.AtLink {
		flags = append(flags, "--lto-sample-profile="+profile)
	}
	if s.Level != "" {
		flags = append(flags, "--lto-"+s.Level)
	}
	return append(flags, s.llvm(coldAtSpeed, hotImports)...)
}

// llvm are options of the optimiser: those that are given, and the recipe's, which win.
func (s Sampling) llvm(options ...map[string]int) []string {
	all := map[string]int{}
	for _, some := range append(options, s.LLVM) {
		maps.Copy(all, some)
	}
	var flags []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		flags = append(flags, "-mllvm", fmt.Sprintf("-%s=%d", name, all[name]))
	}
	return flags
}
