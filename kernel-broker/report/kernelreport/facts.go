// SPDX-License-Identifier: Apache-2.0

package kernelreport

import (
	"cmp"
	"slices"
	"strings"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/build"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/pgo"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/slim"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/verdict"
)

// Facts are all that a report is made of.
type Facts struct {
	// Title of a bench; a report of one kernel has its own.
	Title string `json:"title,omitempty"`
	// Subject is the kernel that the report is of, Application what it was
	// made for, Current the kernel that it has to beat.
	Subject     string `json:"subject,omitempty"`
	Application string `json:"application,omitempty"`
	Current     string `json:"current,omitempty"`
	// Stock and Slim are the kernels that all are shown against: the
	// distribution's own, and the slimmed one built with plain -O2.
	Stock string `json:"stock"`
	Slim  string `json:"slim"`
	// Command by which all this can be had again, and where and when it was.
	Command string `json:"command"`
	Machine string `json:"machine"`
	Made    string `json:"made"` // RFC 3339

	Kernels      []Kernel              `json:"kernels"`
	Workloads    []Workload            `json:"workloads"`
	Applications []verdict.Application `json:"applications"`
	Samples      []verdict.Sample      `json:"samples"`
	Checks       []verdict.CheckRun    `json:"checks"`
	// RunShares are the kernel's shares of the application's own jobs, by their
	// profiling runs.
	RunShares []verdict.RunShare `json:"run_shares,omitempty"`
	// Required are the checks that the subject has to pass.
	Required []string      `json:"required_checks"`
	Rules    verdict.Rules `json:"rules"`

	// Slimming and the options that it went through, for a report of one
	// kernel.
	Slimming *Slimming `json:"slimming,omitempty"`
	Options  []Option  `json:"options,omitempty"`
	// Symbols of the subject by what ran.
	Symbols *Symbols `json:"symbols,omitempty"`
	// Cost of the steps up to the report.
	Cost []Cost `json:"cost,omitempty"`
}

func (f Facts) name() string { return cmp.Or(f.Subject, f.Title) }

func (f Facts) kernel(name string) *Kernel {
	for i := range f.Kernels {
		if f.Kernels[i].Name == name {
			return &f.Kernels[i]
		}
	}
	return nil
}

func (f Facts) application(name string) *verdict.Application {
	for i := range f.Applications {
		if f.Applications[i].Name == name {
			return &f.Applications[i]
		}
	}
	return nil
}

// Kernel that takes part.
type Kernel struct {
	verdict.Kernel
	// Title says in a few words what it is: "Debian's own kernel".
	Title      string     `json:"title"`
	Release    string     `json:"release"`
	BuildID    string     `json:"build_id"`
	Size       Size       `json:"size"`
	Provenance Provenance `json:"provenance"`
	// Profile is nil when it was compiled without one.
	Profile *Profile `json:"profile,omitempty"`
}

// Size of a kernel, in bytes and in numbers; 0 is not known.
type Size struct {
	// Image is the file that is booted (compressed).
	Image int64 `json:"image"`
	// FunctionText is the code of the kernel's functions, which stays in
	// memory: all executable sections but those of the start.
	FunctionText int64 `json:"function_text"`
	// Functions, objects and options that were built in.
	Functions int `json:"functions"`
	Objects   int `json:"objects"`
	Options   int `json:"options"`
	// Sections of code as the compiler parted them (.text, .text.hot,
	// .text.unlikely, ...), in any order.
	Sections []Section `json:"sections"`
}

// Section of a kernel's code.
type Section struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
}

// Provenance is what a kernel was made of, and by what. Digests are sha256:HEX.
type Provenance struct {
	Source        build.Part    `json:"source"`
	ConfigDigest  string        `json:"config_digest"`
	Fragments     []build.Part  `json:"fragments,omitempty"`
	Compiler      string        `json:"compiler"`
	Version       string        `json:"compiler_version"`
	Flags         []string      `json:"flags,omitempty"`
	Patches       []build.Patch `json:"patches,omitempty"`
	ProfileDigest string        `json:"profile_digest,omitempty"`
	ImageDigest   string        `json:"image_digest"`
	// Builder is who built it: program, version, machine.
	Builder string `json:"builder"`
	// InputsKey is the digest of all inputs together.
	InputsKey string `json:"inputs_key,omitempty"`
}

// ProvenanceOf is what a kernel's manifest says of it.
func ProvenanceOf(m build.Manifest) Provenance {
	made := Provenance{
		Source:       build.Part{Name: m.Source.Package + " " + m.Source.Version, Digest: m.Source.Digest},
		ConfigDigest: m.Config.Digest, Flags: m.Flags, ImageDigest: m.Image.Digest, Builder: m.Builder, InputsKey: m.InputsKey,
		Fragments: m.Fragments, Patches: m.Source.Patches,
	}
	if m.Compiler != nil {
		made.Compiler, made.Version = m.Compiler.Name, m.Compiler.Version
	}
	if m.Profile != nil {
		made.ProfileDigest = m.Profile.Digest
	}
	return made
}

// otherVersion is the version of the source that p is of, if a kernel was made by
// the same recipe, profile and compiler of another version; empty otherwise. The
// profile says that both are slimmed alike: its functions are those that stayed.
func (p Provenance) otherVersion(of build.Manifest) string {
	its := ProvenanceOf(of)
	pkg, version, _ := strings.Cut(p.Source.Name, " ")
	if p.ProfileDigest == "" || p.ProfileDigest != its.ProfileDigest || pkg != of.Source.Package || version == of.Source.Version ||
		p.Compiler != its.Compiler || p.Version != its.Version || !slices.Equal(p.Flags, its.Flags) ||
		!slices.Equal(p.Fragments, its.Fragments) || !slices.Equal(p.Patches, its.Patches) {
		return ""
	}
	return version
}

// Workload as the catalog has it.
type Workload struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	// Operation that all figures are per, such as "write of 8 bytes".
	Operation string `json:"operation"`
}

type Decision string

// The decisions.
const (
	Removed Decision = "removed"
	Kept    Decision = "kept"
)

// Option of the configuration that slimming examined.
type Option struct {
	// Symbol without CONFIG_, and what menus call it.
	Symbol   string   `json:"symbol"`
	Prompt   string   `json:"prompt,omitempty"`
	Decision Decision `json:"decision"`
	// Reason is one sentence: "nothing of it ran", "kept: the console".
	Reason string `json:"reason"`
	// Objects and bytes of code that hang on it.
	Objects int   `json:"objects,omitempty"`
	Bytes   int64 `json:"bytes,omitempty"`
}

// Symbols of a kernel's functions by what ran in the training run.
type Symbols struct {
	// Hot ran, cold did not.
	HotCount  int   `json:"hot_count"`
	HotBytes  int64 `json:"hot_bytes"`
	ColdCount int   `json:"cold_count"`
	ColdBytes int64 `json:"cold_bytes"`
	// Hottest and coldest: those of which most ran, and the largest that
	// stayed in the kernel and never ran.
	Hottest []Symbol `json:"hottest"`
	Coldest []Symbol `json:"coldest"`
}

type Symbol struct {
	Name   string `json:"name"`
	Object string `json:"object,omitempty"`
	Bytes  int64  `json:"bytes"`
	// Ran are the bytes of it that ran, Runs how often it did, where that is
	// known.
	Ran  int64 `json:"ran,omitempty"`
	Runs int64 `json:"runs,omitempty"`
}

// mostSymbols of each kind in a report: a kernel has some 20,000.
const mostSymbols = 200

// PartSymbols sums up all functions of a kernel.
func PartSymbols(functions []Symbol) *Symbols {
	var out Symbols
	for _, f := range functions {
		if f.Ran > 0 || f.Runs > 0 {
			out.HotCount++
			out.HotBytes += f.Bytes
			out.Hottest = append(out.Hottest, f)
		} else {
			out.ColdCount++
			out.ColdBytes += f.Bytes
			out.Coldest = append(out.Coldest, f)
		}
	}
	slices.SortFunc(out.Hottest, func(a, b Symbol) int {
		return cmp.Or(cmp.Compare(b.Runs, a.Runs), cmp.Compare(b.Ran, a.Ran), strings.Compare(a.Name, b.Name))
	})
	slices.SortFunc(out.Coldest, func(a, b Symbol) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), strings.Compare(a.Name, b.Name))
	})
	out.Hottest = out.Hottest[:min(len(out.Hottest), mostSymbols)]
	out.Coldest = out.Coldest[:min(len(out.Coldest), mostSymbols)]
	return &out
}

// Profile is how the compiler used a kernel's profile.
type Profile struct {
	// Objects that were compiled with it.
	Objects int `json:"objects"`
	// Excluded objects were compiled without it, though they have one.
	Excluded []build.Exclusion `json:"excluded,omitempty"`
	pgo.Complaints
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
	Missing []slim.Missing `json:"missing_drivers,omitempty"`
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
