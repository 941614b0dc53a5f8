// SPDX-License-Identifier: Apache-2.0

package kernelreport

import (
	"cmp"
	"fmt"
	"regexp"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/verdict"
)

var digest = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

func (f Facts) name() string { return cmp.Or(f.Subject, f.Title) }

func (f Facts) wrong(format string, args ...any) error {
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), ErrFacts)
}

// check that every name that the facts use is one that they explain.
func (f Facts) check() error {
	for _, step := range []func() error{f.checkNames, f.checkKernels, f.checkSubject, f.checkSamples, f.checkOptions, f.checkMade, f.Rules.Check} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func (f Facts) checkNames() error {
	if f.Subject == "" && f.Title == "" {
		return f.wrong("neither subject nor title")
	}
	if _, err := time.Parse(time.RFC3339, f.Made); err != nil {
		return f.wrong("made %q is no time", f.Made)
	}
	for _, role := range []struct{ what, kernel string }{{"stock", f.Stock}, {"slim", f.Slim}} {
		if role.kernel != "" && f.kernel(role.kernel) == nil {
			return f.wrong("%s kernel %q is not described", role.what, role.kernel)
		}
	}
	return nil
}

func (f Facts) checkKernels() error {
	seen := map[string]bool{}
	for _, k := range f.Kernels {
		if k.Name == "" || seen[k.Name] {
			return f.wrong("kernel %q has no name or stands twice", k.Name)
		}
		seen[k.Name] = true
		p := k.Provenance
		digests := []string{p.Source.Digest, p.ConfigDigest, p.ProfileDigest, p.ImageDigest}
		for _, input := range p.Fragments {
			digests = append(digests, input.Digest)
		}
		for _, patch := range p.Patches {
			digests = append(digests, patch.Digest)
		}
		for _, d := range digests {
			if d != "" && !digest.MatchString(d) {
				return f.wrong("kernel %q: %q is no digest", k.Name, d)
			}
		}
	}
	return nil
}

func (f Facts) checkSubject() error {
	if f.Subject == "" {
		if f.Application != "" || f.Current != "" {
			return f.wrong("an application or a current kernel without a subject")
		}
		return nil
	}
	for _, role := range []struct{ what, kernel string }{{"subject", f.Subject}, {"current", f.Current}} {
		if f.kernel(role.kernel) == nil {
			return f.wrong("%s kernel %q is not described", role.what, role.kernel)
		}
	}
	if f.application(f.Application) == nil {
		return f.wrong("application %q is not described", f.Application)
	}
	return nil
}

func (f Facts) checkSamples() error {
	known := map[string]bool{}
	for _, w := range f.Workloads {
		if known[w.Name] {
			return f.wrong("workload %q stands twice", w.Name)
		}
		known[w.Name] = true
	}
	seen := map[string]bool{}
	for _, a := range f.Applications {
		if seen[a.Name] || !known[a.Test.Workload] {
			return f.wrong("application %q stands twice, or its workload %q is not described", a.Name, a.Test.Workload)
		}
		if a.Kernel != "" && f.kernel(a.Kernel) == nil {
			return f.wrong("application %q: its kernel %q is not described", a.Name, a.Kernel)
		}
		seen[a.Name] = true
	}
	for _, s := range f.Samples {
		if f.kernel(s.Kernel) == nil || !known[s.Workload] {
			return f.wrong("a sample of %s on kernel %q: one of them is not described", s.Workload, s.Kernel)
		}
		if _, err := s.Summary(); err != nil {
			return f.wrong("a sample of %s on kernel %q: %v", s.Workload, s.Kernel, err)
		}
	}
	for _, c := range f.Checks {
		if f.kernel(c.Kernel) == nil {
			return f.wrong("check %q: kernel %q is not described", c.Workload, c.Kernel)
		}
	}
	return nil
}

func (f Facts) checkOptions() error {
	for _, o := range f.Options {
		if o.Decision != Removed && o.Decision != Kept {
			return f.wrong("option %q: decision %q", o.Symbol, o.Decision)
		}
		if o.Reason == "" {
			return f.wrong("option %q is %s without a reason", o.Symbol, o.Decision)
		}
	}
	return nil
}

// checkMade looks at how kernels were made.
func (f Facts) checkMade() error {
	for _, k := range f.Kernels {
		if k.Profile == nil {
			continue
		}
		for _, e := range k.Profile.Excluded {
			if e.Reason == "" {
				return f.wrong("kernel %q: object %q has no profile, without a reason", k.Name, e.Object)
			}
		}
	}
	if f.Slimming != nil {
		for _, run := range f.Slimming.Runs {
			if err := f.checkRun(run); err != nil {
				return err
			}
		}
	}
	for _, step := range f.Cost {
		if !(step.Seconds >= 0) || step.Bytes < 0 {
			return f.wrong("step %q took %v seconds and made %d bytes", step.Step, step.Seconds, step.Bytes)
		}
	}
	return nil
}

func (f Facts) checkRun(r SlimmingRun) error {
	if r.Run == 0 || r.Found < 0 || r.Found > r.Named {
		return f.wrong("run %d: %d of %d names are in the kernel", r.Run, r.Found, r.Named)
	}
	for _, result := range r.Results {
		if !digest.MatchString(result.Digest) {
			return f.wrong("run %d, node %q: %q is no digest", r.Run, result.Name, result.Digest)
		}
	}
	return nil
}

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
