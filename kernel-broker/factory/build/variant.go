// SPDX-License-Identifier: Apache-2.0

package build

import (
	"cmp"
	"fmt"
	"os/exec"
	"slices"
	"strings"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/autofdo"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/kconfig"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/pgo"
)

// Variant is what a configuration is compiled for.
type Variant string

const (
	// Plain is the kernel without a profile: O2 or Os.
	Plain Variant = "plain"
	// Instrumented counts what is executed. Its configuration has the counting
	// options; the rest must be that of the kernel to be optimised.
	Instrumented Variant = "instrumented"
	// Traced is the plain kernel, byte for byte but for the configuration that
	// it carries, with a map from addresses to objects. It is never optimised over
	// the borders of objects.
	Traced Variant = "traced"
	// Optimised is compiled with a profile.
	Optimised Variant = "optimised"

	// configuring is a folder for nothing but kconfig, which needs no lock
	// that a long build holds.
	configuring Variant = "config"
)

// seed makes GCC's names and stamps in counting objects the same each time.
const seed = "-frandom-seed=kernel-broker"

// mode of the profile's use, for the recipe.
func (p Plan) mode() pgo.Mode { return pgo.Mode(p.Recipe.Optimisation) }

// flavour distinguishes the object folders of one source and compiler. What is
// compiled with other flags for every file shares no object.
func (p Plan) flavour(variant Variant) (string, error) {
	flavour, err := p.optimised(variant)
	if p.Pahole != "" && variant != configuring {
		flavour += "-debug"
	}
	if len(p.Recipe.Modules) > 0 && variant != configuring {
		flavour += "-modules" // with them nearly every object is another one
	}
	return flavour, err
}

// optimised is the flavour by what the compiler does with the code.
func (p Plan) optimised(variant Variant) (string, error) {
	switch variant {
	case Plain, Traced:
		switch p.Recipe.Optimisation {
		case OptimiseSize:
			return "-os", nil
		case OptimiseAutoFDO:
			return "-" + p.sampling().Marks(), nil
		}
		return "", nil
	case Instrumented:
		return "-instrumented" + strings.ToLower(p.level(variant)), nil
	case configuring:
		return "-config", nil
	case Optimised:
		if p.Recipe.Optimisation.Profiled() {
			flavour := "-" + string(p.Recipe.Optimisation)
			if p.lines() && p.sampling().Probes {
				flavour += "-" + p.sampling().Marks()
			}
			return flavour, nil
		}
		return "", fmt.Errorf("kernel %q: optimisation %s takes no profile", p.Recipe.Name, p.Recipe.orDefault())
	}
	return "", fmt.Errorf("kernel %q: no variant %q", p.Recipe.Name, string(variant))
}

// optimisation is what the variant is really compiled with: without a profile,
// a recipe that wants one is plain O2.
func (p Plan) optimisation(variant Variant) Optimisation {
	if p.Recipe.Optimisation.Profiled() && variant != Optimised {
		return OptimiseO2
	}
	return p.Recipe.orDefault()
}

// Quick is the recipe's kernel slimmed and compiled once, at -O2 by the first compiler, without a profile: what a machine that has no kernel yet
// makes in a few minutes, and shares objects of with others.
func (r Recipe) Quick() Recipe {
	r.Compiler, r.Optimisation, r.Branches, r.Exclude = quickCompiler, OptimiseO2, nil, nil
	r.Fragments = slices.DeleteFunc(slices.Clone(r.Fragments), func(name string) bool { return name == thinLTOFragment })
	return r
}

const (
	quickCompiler   = "gcc-12"
	thinLTOFragment = "thin-lto"
)

func (r Recipe) orDefault() Optimisation { return cmp.Or(r.Optimisation, OptimiseO2) }

// overlays of the variant besides those of the optimisation.
func (p Plan) overlays(v Variant) []kconfig.Fragment {
	switch {
	case v == Instrumented:
		return []kconfig.Fragment{countingOptions}
	case v == Traced && p.Merged.Asks(thinLTO):
		return []kconfig.Fragment{mapOptions, noLTO}
	case v == Traced:
		return []kconfig.Fragment{mapOptions}
	}
	return nil
}

// level is the compiler's level of optimisation where it is another than the
// configuration's. With a whole profile it is -O3: what is cold is optimised for
// size all the same. Counters fit only code that was compiled alike, so the
// kernel that counts has the same (ADR 0018).
func (p Plan) level(variant Variant) string {
	if p.Recipe.Optimisation == OptimisePGO && (variant == Instrumented || variant == Optimised) {
		return "-O3"
	}
	return ""
}

// flags are the compiler's besides kbuild's, for objects below obj.
func (p Plan) flags(variant Variant, obj string) ([]string, error) {
	var flags []string
	switch {
	case variant == Instrumented:
		flags = []string{seed}
	case variant == Optimised && !p.lines():
		var err error
		if flags, err = p.mode().Flags(profileFolder(obj), obj); err != nil {
			return nil, err
		}
	}
	if level := p.level(variant); level != "" {
		flags = append(flags, level)
	}
	return append(flags, p.more(variant)...), nil
}

// more are the recipe's own. The kernel that counts is compiled without them, so that kernels with other flags share its
// counters.
func (p Plan) more(variant Variant) []string {
	if variant == Plain || variant == Optimised {
		return p.Recipe.Flags
	}
	return nil
}

// lines reports whether the kernel's code is to be traced back to lines: branches
// that are recorded on it are addresses.
func (p Plan) lines() bool { return p.Recipe.Optimisation == OptimiseAutoFDO }

// sampling is how the kernel's branches become its profile.
func (p Plan) sampling() autofdo.Sampling { return p.Recipe.Sampling() }

// Sampling is how branches of the recipe's kernel become its profile, and how that is used.
func (r Recipe) Sampling() autofdo.Sampling {
	s := autofdo.Sampling{CallTargets: true, AtLink: true}
	if b := r.Branches; b != nil {
		s.CallTargets = b.CallTargets == nil || *b.CallTargets
		s.AtLink = b.AtLink == nil || *b.AtLink
		s.Probes, s.Level, s.LLVM = b.Probes, b.Level, b.LLVM
	}
	return s
}

// profileFolder is where the compiler finds the profile. It never moves: its
// path is among the flags, and kbuild compiles an object again when those
// change.
func profileFolder(obj string) string { return obj + ".profile" }

// tools are make's variables for the tool chain.
func (p Plan) tools(variant Variant) []string {
	var tools []string
	if p.Pahole == "" {
		// Its version is written into every configuration where it is there.
		tools = append(tools, "PAHOLE=not-used")
	}
	if suffix, clang := strings.CutPrefix(p.Compiler.Name, "clang"); clang {
		return append(tools, "LLVM="+suffix, "CC="+p.ccCommand(variant))
	}
	return append(tools, "CC="+p.ccCommand(variant), "HOSTCC="+p.Compiler.Name)
}

// names of a kernel. One that is only a step on the way has no recipe's, so that
// recipes with one configuration share it.
func (p Plan) names(variant Variant) (name, description string) {
	if variant == Traced || variant == Instrumented {
		return string(variant), ""
	}
	return p.Recipe.Name, p.Recipe.Description
}

// ccCommand is the compiler as make calls it: through ccache where there is
// one, since kernels of one source share most of their objects. It cannot cache
// what a profile goes into. And a kernel that counts is built once for its
// configuration, whose objects are kept; finding nothing costs a compilation a
// third more.
func (p Plan) ccCommand(variant Variant) string {
	if _, err := exec.LookPath("ccache"); err == nil && variant != Optimised && variant != Instrumented {
		return "ccache " + p.Compiler.Name
	}
	return p.Compiler.Name
}
