// SPDX-License-Identifier: Apache-2.0

package advice

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling/patterns"
)

// share of the job's time, at most what the kernel had: wall time of calls and estimates may come to more. nil if the
// job's time is not known.
func (f facts) share(ns float64) *float64 {
	if f.jobNS == 0 {
		return nil
	}
	s := min(f.kernel, ns/f.jobNS)
	return &s
}

// estimated reports whether one of them saw a part of the time only.
func (f facts) estimated(by ...profiling.Collector) bool {
	return slices.ContainsFunc(by, func(c profiling.Collector) bool {
		all, _ := f.result.Covered(c)
		return !all.Exact
	})
}

// profiledKernel is bounded by all of the kernel's own work.
func profiledKernel(f facts) []Step {
	if f.jobNS == 0 {
		return nil
	}
	bound := f.kernel
	how := "sbatch --kernel-profiling=pgo takes the profile that such a kernel is made from"
	if f.result.Used().Any() {
		how += "; kernelctl kernel build NAME --instrumented --from-run with this run's number makes the kernel for that, and keeps in it what this job used"
	}
	if f.result.PGO != nil && len(f.result.PGO.Archives) > 0 {
		how = "kernelctl kernel build NAME --from-run with this run's number builds it, measures it, and publishes it only if it wins"
	}
	return []Step{{
		What: ProfiledKernel, Title: "A kernel of its own", Kernel: true, By: ByBuilder, Bound: &bound,
		Why: fmt.Sprintf("the kernel's own work is %s of the job's CPU time; one built for this job by its profile, without what it does not use, does the same with less", Percent(bound)),
		How: f.offered() + how,
	}}
}

// offered names the site's own profiles: to try them costs an option.
func (f facts) offered() string {
	const most = 5
	var names []string
	for _, p := range f.site[:min(most, len(f.site))] {
		names = append(names, p.Name)
	}
	if len(names) == 0 {
		return ""
	}
	which := strings.Join(names, ", ")
	if more := len(f.site) - most; more > 0 {
		which += fmt.Sprintf(" and %d more", more)
	}
	return "try first what the site offers, by sbatch --kernel-profile=NAME: " + which + "; then "
}

// largerPages is bounded by the time of page faults, in calls and outside.
func largerPages(f facts) []Step {
	s := f.result.Syscalls
	if s == nil || f.jobNS == 0 {
		return nil
	}
	var ns, faults float64
	for _, c := range s.Calls {
		part := c.Split[profiling.CauseFault]
		ns += float64(part.NS)
		if c.Name == profiling.PageFault {
			// The way into and out of the fault is the call's own work.
			ns += float64(c.Split[profiling.CauseCall].NS)
			part.Count = c.Count
		}
		faults += float64(part.Count)
	}
	return []Step{{
		What: LargerPages, Title: "Larger pages", Kernel: true, By: ByAdministrator, Bound: f.share(ns), Estimate: f.estimated(profiling.CollectSyscalls),
		Why: fmt.Sprintf("%.0f page faults took at most %s of the job's CPU time", faults, Percent(*f.share(ns))),
		How: "a profile with the argument transparent_hugepage=always, or madvise and a program that asks",
	}}
}

// quietCPUs is bounded by what others took from CPUs that the job could have
// had.
func quietCPUs(f facts) []Step {
	n := f.result.Noise
	if n == nil {
		return nil
	}
	var wanted, interrupts, threads float64
	for _, c := range n.CPUs {
		wanted += float64(c.WantedNS)
		for _, s := range c.Sources {
			switch s.Kind {
			case profiling.NoiseThread:
				threads += float64(s.NS)
			case profiling.NoiseIRQ, profiling.NoiseSoftIRQ, profiling.NoiseNMI:
				interrupts += float64(s.NS)
			}
		}
	}
	if wanted == 0 {
		return nil
	}
	// The agent is there because the job is profiled.
	byInterrupts, byThreads := min(1, interrupts/wanted), max(0, min(1, threads/wanted)-n.Observing())
	return []Step{
		{
			What: IsolateCPUs, Title: "CPUs for the job alone", Kernel: true, By: ByAdministrator, Bound: &byThreads, Estimate: f.estimated(profiling.CollectNoise),
			Why: fmt.Sprintf("other tasks, without the agent that observed, had the job's CPUs for %s of the time that it wanted them", Percent(byThreads)),
			How: isolating(f.result),
		},
		{
			What: MoveInterrupts, Title: "Interrupts elsewhere", Kernel: true, By: ByAdministrator, Bound: &byInterrupts, Estimate: f.estimated(profiling.CollectNoise),
			Why: fmt.Sprintf("interrupts took %s of the time that the job wanted its CPUs", Percent(byInterrupts)),
			How: "a profile with irqaffinity= for the CPUs that the job does not use" + againstTick(f.result),
		},
	}
}

// isolating names the arguments that the kernel honours, and what it lacks for the
// others: it takes those without a word and does nothing.
func isolating(r profiling.Result) string {
	honoured, ignored, known := r.NoiseArguments()
	switch {
	case !known:
		return "a profile that gives the job's CPUs to nobody else, of a kernel with " + symbols(append(honoured, ignored...)) +
			": it ignores what it was built without, and nobody knows how this one was"
	case len(honoured) == 0:
		return "first a kernel with " + symbols(ignored) + ", which a recipe's fragment can set: this one was built without, and ignores such arguments"
	}
	how := "a profile that gives the job's CPUs to nobody else (" + arguments(honoured) + ") and leaves the others to slurmd and daemons"
	if len(ignored) > 0 {
		how += "; this kernel ignores " + arguments(ignored) + ", it was built without " + symbols(ignored)
	}
	return how
}

// againstTick is for the timer's own interrupt.
func againstTick(r profiling.Result) string {
	const tick = "nohz_full="
	honoured, _, known := r.NoiseArguments()
	is := func(a profiling.Argument) bool { return a.Name == tick }
	if known && slices.ContainsFunc(honoured, is) {
		return ", and " + tick + " against the timer's tick"
	}
	return "; against the timer's tick it takes a kernel with CONFIG_NO_HZ_FULL"
}

func arguments(list []profiling.Argument) string {
	var names []string
	for _, a := range list {
		names = append(names, a.Name)
	}
	return strings.Join(names, ", ")
}

func symbols(list []profiling.Argument) string {
	var names []string
	for _, a := range list {
		names = append(names, "CONFIG_"+a.Symbol)
	}
	return strings.Join(names, ", ")
}

// calls that patterns count as reads and as writes.
var (
	reading = []string{"read", "pread64", "readv", "preadv", "preadv2"}
	writing = []string{"write", "pwrite64", "writev", "pwritev", "pwritev2"}
	syncing = []string{"fsync", "fdatasync", "sync_file_range"}
	seeking = []string{"lseek"}
)

var advised = map[string]struct {
	title, how string
	calls      []string
}{
	patterns.GatherWrites: {"Gathered writes", "a buffer in the program or its library (setvbuf, buffered I/O of the Fortran runtime)", writing},
	patterns.BufferReads:  {"Buffered reads", "a buffer in the program or its library", reading},
	patterns.GroupSyncs:   {"Fewer syncs", "in the program: one sync where the data must be safe", syncing},
	patterns.NoSeeks:      {"No idle seeks", "in the program or its library", seeking},
	patterns.FewerFiles:   {"Fewer files", "in the program, or by a file system in memory until the job ends", nil},
	patterns.NoReadAhead:  {"No reading ahead", "posix_fadvise(POSIX_FADV_RANDOM) in the program", nil},
}

// program is what patterns advise, with a bound where the calls' time was
// measured: those saved take no more than their part of all calls of the kind.
func program(f facts) []Step {
	if f.result.IO == nil {
		return nil
	}
	var steps []Step
	for _, p := range patterns.Advise(f.result.IO.Patterns) {
		for _, a := range p.Advice {
			known := advised[a.What]
			if known.title == "" {
				known.title = a.What
			}
			steps = append(steps, Step{What: a.What, Title: known.title + " for " + p.Shape, Why: a.Why, How: known.how, By: ByAuthor,
				Bound: f.saved(a.CallsSaved, known.calls), Estimate: f.estimated(profiling.CollectIO, profiling.CollectSyscalls)})
		}
	}
	return steps
}

// saved is the share of the job's time that so many calls took on average, the
// kernel's own work alone: waiting is no CPU time.
func (f facts) saved(calls uint64, names []string) *float64 {
	if f.result.Syscalls == nil || f.jobNS == 0 || calls == 0 {
		return nil
	}
	var count, ns float64
	for _, name := range names {
		c := f.result.Syscalls.Named(name)
		count += float64(c.Count)
		ns += float64(c.Split[profiling.CauseCall].NS)
	}
	if count == 0 {
		return nil
	}
	return f.share(ns * min(1, float64(calls)/count))
}
