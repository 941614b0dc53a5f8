// SPDX-License-Identifier: Apache-2.0

package advice

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling/patterns"
)

// job used a second, so many milliseconds of it in the kernel.
func job(kernelMS uint64, more func(*profiling.Result)) profiling.Result {
	r := profiling.Result{Format: profiling.Format, Nodes: []profiling.Node{{Name: "n1", JobNS: 1e9, UserNS: 1e9 - kernelMS*1e6, SystemNS: kernelMS * 1e6}}}
	if more != nil {
		more(&r)
	}
	return r
}

func calls(name string, count, ownMS uint64) profiling.Syscall {
	return profiling.Syscall{Name: name, Count: count, NS: ownMS * 2e6,
		Split: map[profiling.Cause]profiling.Part{profiling.CauseCall: {NS: ownMS * 1e6}}}
}

func noise(kind profiling.NoiseKind, ms uint64) *profiling.Noise {
	return &profiling.Noise{CPUs: []profiling.CPUNoise{{Node: "n1", WantedNS: 1e9, LostNS: ms * 1e6,
		Sources: []profiling.NoiseSource{{Kind: kind, Name: "x", Count: 1, NS: ms * 1e6}}}}}
}

// appends are so many writes of 360 bytes to one file, one after the other.
func appends(n uint64) *profiling.IO {
	traffic := profiling.Traffic{Calls: n, Bytes: n * 360, Small: n, Sequential: n}
	return &profiling.IO{Patterns: []profiling.Pattern{{Behaviour: patterns.SmallAppends, Shape: "/out/*.data", Files: 1, Calls: n, Write: traffic}}}
}

func TestDecide(t *testing.T) {
	for _, c := range []struct {
		name     string
		result   profiling.Result
		verdict  Verdict
		best     string
		bound    float64
		headline string
	}{
		{"no time known", profiling.Result{}, Unknown, "", 0, "the job's CPU time is not known"},
		{"all in the program", job(3, nil), NothingToGain, "", 0, "This job spent 0.3 % of its time in the kernel: nothing to gain from another kernel."},
		{"and nobody in its way", job(3, func(r *profiling.Result) { r.Noise = noise(profiling.NoiseIRQ, 2) }), NothingToGain, "", 0,
			"This job spent 0.3 % of its time in the kernel, and others took 0.2 %: nothing to gain from another kernel."},
		{"much in the kernel", job(400, nil), WorthAKernel, ProfiledKernel, 0.4, "This job spent 40 % of its time in the kernel; a kernel of its own would save at most 40 % of the job's CPU time."},
		{"the measuring is not the kernel's", job(300, func(r *profiling.Result) {
			r.Overhead = []profiling.Overhead{{Node: "n1", Collector: "io", JobNS: 100, SpentNS: 20}}
		}), WorthAKernel, ProfiledKernel, 0.1, "This job spent 10 % of its time in the kernel (the profiler's own 20 % is already subtracted); a kernel"},
		{"observed for a part of the time, at a part of the cost", job(300, func(r *profiling.Result) {
			r.Overhead = []profiling.Overhead{{Node: "n1", Collector: "io", JobNS: 100, SpentNS: 20}}
			r.Cover(profiling.Coverage{Node: "n1", Collector: "io", JobNS: 1000, ObservedJobNS: 500, CostNS: 100})
		}), WorthAKernel, ProfiledKernel, 0.2, "spent 20 % of its time in the kernel (the profiler's own 10 % is already subtracted);"},
		{"windows where the job began, busier than all the rest", job(50, func(r *profiling.Result) {
			r.Overhead = []profiling.Overhead{{Node: "n1", Collector: "io", JobNS: 1000, SpentNS: 38}}
			r.Cover(profiling.Coverage{Node: "n1", Collector: "io", Exact: true, JobNS: 1e6, ObservedJobNS: 1e6, CostNS: 4000})
		}), WorthAKernel, ProfiledKernel, 0.046, "spent 4.6 % of its time in the kernel (the profiler's own 0.4 % is already subtracted);"},
		{"neighbours", job(3, func(r *profiling.Result) { r.Noise = noise(profiling.NoiseThread, 200) }), WorthAKernel, IsolateCPUs, 0.2,
			"; CPUs for the job alone would save at most 20 % of the time that it wanted its CPUs."},
		{"interrupts", job(3, func(r *profiling.Result) { r.Noise = noise(profiling.NoiseSoftIRQ, 50) }), WorthAKernel, MoveInterrupts, 0.05,
			"; interrupts elsewhere would save at most 5 % of the time that it wanted its CPUs."},
		{"page faults take no more than the kernel had", job(30, func(r *profiling.Result) {
			// Outside of calls, too, the collector books the work of a fault as that of a fault.
			r.Syscalls = &profiling.Syscalls{Calls: []profiling.Syscall{
				{Name: profiling.PageFault, Count: 100, NS: 30e6, Split: map[profiling.Cause]profiling.Part{
					profiling.CauseFault: {Count: 100, NS: 29e6}, profiling.CauseCall: {NS: 1e6}}},
				{Name: "read", Count: 1, Split: map[profiling.Cause]profiling.Part{profiling.CauseFault: {Count: 5, NS: 20e6}}},
			}}
		}), WorthAKernel, ProfiledKernel, 0.03, "would save at most 3 % of the job's CPU time"},
		{"the profiler took more than the kernel had", job(120, func(r *profiling.Result) {
			r.Overhead = []profiling.Overhead{{Node: "n1", Collector: "io", JobNS: 100, SpentNS: 1091}}
		}), Unknown, "", 0, "the profiler took all of the 12 % of the job's CPU time that the kernel had."},
		{"small writes", job(200, func(r *profiling.Result) {
			r.IO = appends(10000)
			r.Syscalls = &profiling.Syscalls{Calls: []profiling.Syscall{calls("write", 10000, 150)}}
		}), WorthAKernel, ProfiledKernel, 0.2, ""},
		{"small writes whose time nobody took", job(3, func(r *profiling.Result) { r.IO = appends(10000) }), NothingToGain, patterns.GatherWrites, 0,
			"What the program could do otherwise stands below."},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := Decide(c.result)
			if d.Verdict != c.verdict || !strings.Contains(d.Headline, c.headline) {
				t.Errorf("%s: %s", d.Verdict, d.Headline)
			}
			best, bound := "", 0.0
			if len(d.Steps) > 0 {
				best, bound = d.Steps[0].What, d.Steps[0].bound()
			}
			if best != c.best || bound < c.bound-1e-9 || bound > c.bound+1e-9 {
				t.Errorf("best is %s with %v: %+v", best, bound, d.Steps)
			}
		})
	}
}

// The agent's own time is no reason for CPUs without neighbours.
func TestWhoLooksIsNoNeighbour(t *testing.T) {
	r := job(3, func(r *profiling.Result) { r.Noise = noise(profiling.NoiseThread, 200) })
	sources := r.Noise.CPUs[0].Sources
	sources[0].Name = profiling.AgentThread
	if share := r.Noise.Observing(); share < 0.199 || share > 0.201 {
		t.Errorf("the agent had %v of the time", share)
	}
	for _, s := range Decide(r).Steps {
		if s.What == IsolateCPUs {
			t.Errorf("%+v", s)
		}
	}
	// An interrupt of that name is none of the agent's.
	sources[0].Kind = profiling.NoiseIRQ
	if share := r.Noise.Observing(); share != 0 {
		t.Errorf("the agent had %v of the time", share)
	}
}

// What gathering can save is the calls' own work, in the share of calls saved.
func TestGatheredWrites(t *testing.T) {
	r := job(200, func(r *profiling.Result) {
		r.IO = appends(10000)
		r.Syscalls = &profiling.Syscalls{Calls: []profiling.Syscall{calls("write", 20000, 150)}}
	})
	for _, s := range Decide(r).Steps {
		if s.What == patterns.GatherWrites {
			// 3.6 MB are 879 pages: 9121 of 20000 calls, of 150 ms.
			if got, want := *s.Bound, 0.15*9121/20000; got < want-1e-6 || got > want+1e-6 || s.Kernel {
				t.Errorf("bound %v, want %v", got, want)
			}
			return
		}
	}
	t.Error("no such step")
}

func TestProfileAtHand(t *testing.T) {
	r := job(400, func(r *profiling.Result) { r.PGO = &profiling.PGO{Archives: []profiling.Archive{{Node: "n1"}}} })
	if how := Decide(r).Steps[0].How; !strings.Contains(how, "--from-run") {
		t.Error(how)
	}
}

func TestTraceAtHand(t *testing.T) {
	for words, change := range map[string]func(r *profiling.Result){
		"--instrumented --from-run": func(r *profiling.Result) {
			r.Syscalls = &profiling.Syscalls{Calls: []profiling.Syscall{{Name: "read", Count: 1}}}
		},
		"made from": func(r *profiling.Result) { r.Syscalls = nil },
	} {
		if how := Decide(job(400, change)).Steps[0].How; !strings.Contains(how, words) || strings.Contains(how, "--from-run") != (words != "made from") {
			t.Errorf("%q, want %q", how, words)
		}
	}
}

func TestCaveats(t *testing.T) {
	r := job(1, func(r *profiling.Result) {
		r.Partial = []profiling.Partial{{Node: "n1", Why: "disk full"}, {Node: "n2", Collector: "io", Why: "stopped"}}
		r.Refused = []profiling.Refusal{{Node: "n1", Part: "splice", Unsupported: profiling.Unsupported{Collector: "io", Detail: "no tracepoint"}}}
	})
	want := "node n1: disk full|node n2: io: stopped|node n1: io, splice: no tracepoint"
	if got := strings.Join(Decide(r).Caveats, "|"); got != want {
		t.Error(got)
	}
}

// Estimates, and clocks that differ, may add up to more than the whole.
func TestNoBoundIsBeyondTheWhole(t *testing.T) {
	r := job(900, func(r *profiling.Result) {
		r.Syscalls = &profiling.Syscalls{Calls: []profiling.Syscall{
			{Name: "write", Count: 10000, Split: map[profiling.Cause]profiling.Part{profiling.CauseCall: {NS: 3e9}, profiling.CauseFault: {Count: 5, NS: 2e9}}}}}
		r.IO = appends(20000)
		r.Noise = noise(profiling.NoiseThread, 1500)
		r.Noise.CPUs[0].Sources = append(r.Noise.CPUs[0].Sources, noise(profiling.NoiseIRQ, 1200).CPUs[0].Sources...)
	})
	d := Decide(r)
	if len(d.Steps) != 5 {
		t.Errorf("%d steps", len(d.Steps))
	}
	for _, s := range d.Steps {
		if *s.Bound > 1 || strings.Contains(s.Why, "50.0 %") || strings.Contains(s.Why, "20.0 %") || strings.Contains(s.Why, "200.0 %") {
			t.Errorf("%s: %v: %s", s.What, *s.Bound, s.Why)
		}
	}
}

// No figures whatever give a bound below nothing or above the whole, and steps
// come with the largest first.
func TestBounds(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		ms := rapid.Uint64Range(0, 1000)
		r := job(ms.Draw(rt, "kernel"), func(r *profiling.Result) {
			r.Noise = noise(profiling.NoiseThread, ms.Draw(rt, "noise"))
			r.IO = appends(rapid.Uint64Range(0, 1e6).Draw(rt, "appends"))
			r.Syscalls = &profiling.Syscalls{Calls: []profiling.Syscall{calls("write", rapid.Uint64Range(0, 1e6).Draw(rt, "writes"), ms.Draw(rt, "own"))}}
			r.Overhead = []profiling.Overhead{{Collector: "io", JobNS: 1e9, SpentNS: ms.Draw(rt, "spent") * 1e6}}
		})
		d := Decide(r)
		last := 1.0
		for _, s := range d.Steps {
			if s.Bound != nil && (*s.Bound < Worthwhile || *s.Bound > 1) || s.bound() > last {
				rt.Fatalf("%+v", d.Steps)
			}
			last = s.bound()
		}
		if d.KernelShare == nil {
			if d.Verdict != Unknown {
				rt.Fatalf("%s without a share of the kernel", d.Verdict)
			}
		} else if *d.KernelShare < 0 || *d.KernelShare > 1 {
			rt.Fatalf("kernel share %v", *d.KernelShare)
		}
	})
}

// A site that has kernels hears of them, and what the best of them would save.
func TestTheSitesOwnKernels(t *testing.T) {
	saves := func(share float64) *float64 { return &share }
	site := []SiteProfile{{Name: "unmeasured"}, {Name: "redis", Saves: saves(0.36)}, {Name: "lammps", Saves: saves(0.44)}, {Name: "worse", Saves: saves(-0.1)}, {Name: "e"}, {Name: "f"}}
	d := Decide(job(400, nil), site...)
	if want := "40 % of the job's CPU time. This site's best, lammps, saves 44 % of the kernel's work: as good a one would save 18 % here."; !strings.HasSuffix(d.Headline, want) {
		t.Errorf("%s", d.Headline)
	}
	if how := d.Steps[0].How; !strings.HasPrefix(how, "try first what the site offers, by sbatch --kernel-profile=NAME: lammps, redis, unmeasured, e, f and 1 more; then sbatch") {
		t.Errorf("%s", how)
	}
	if d := Decide(job(400, nil), SiteProfile{Name: "worse", Saves: saves(-0.1)}); strings.Contains(d.Headline, "best") {
		t.Errorf("a kernel that saves nothing is praised: %s", d.Headline)
	}
	if d := Decide(job(3, nil), site...); strings.Contains(d.Headline, "best") || len(d.Steps) > 0 {
		t.Errorf("%+v", d)
	}
}

func TestPercent(t *testing.T) {
	for share, want := range map[float64]string{0: "0 %", 0.003: "0.3 %", 0.0123: "1.2 %", 0.4: "40 %", 0.00001: "less than 0.01 %", 1: "100 %", 0.0996: "10 %", 0.02: "2 %", -0.0345: "-3.5 %"} {
		if got := Percent(share); got != want {
			t.Errorf("%v: %q, want %q", share, got, want)
		}
	}
}

// What the kernel ignores is not advised; what it lacks is named.
func TestAdviceNamesWhatTheKernelHeeds(t *testing.T) {
	all := []string{"CPU_ISOLATION", "NO_HZ_FULL", "RCU_NOCB_CPU"}
	for name, c := range map[string]struct {
		lacks       []string
		kind        profiling.NoiseKind
		words, none string
	}{
		"has all":             {[]string{}, profiling.NoiseThread, "(isolcpus=, nohz_full=, rcu_nocbs=)", "ignores"},
		"has some":            {all[1:], profiling.NoiseThread, "(isolcpus=) and leaves the others to slurmd and daemons; this kernel ignores nohz_full=, rcu_nocbs=, it was built without CONFIG_NO_HZ_FULL, CONFIG_RCU_NOCB_CPU", "isolcpus=, n"},
		"has none":            {all, profiling.NoiseThread, "first a kernel with CONFIG_CPU_ISOLATION, CONFIG_NO_HZ_FULL, CONFIG_RCU_NOCB_CPU", "isolcpus="},
		"nobody knows":        {nil, profiling.NoiseThread, "nobody knows how this one was", "isolcpus="},
		"ticks":               {[]string{}, profiling.NoiseIRQ, "and nohz_full= against the timer's tick", "CONFIG"},
		"ticks without":       {all, profiling.NoiseIRQ, "it takes a kernel with CONFIG_NO_HZ_FULL", "nohz_full="},
		"ticks, who knows":    {nil, profiling.NoiseIRQ, "it takes a kernel with CONFIG_NO_HZ_FULL", "nohz_full="},
		"only isolation left": {all[:1], profiling.NoiseThread, "(nohz_full=, rcu_nocbs=)", "(isolcpus="},
	} {
		d := Decide(job(3, func(r *profiling.Result) { r.Noise, r.Nodes[0].Kernel.Lacks = noise(c.kind, 200), c.lacks }))
		if len(d.Steps) != 1 || !strings.Contains(d.Steps[0].How, c.words) || strings.Contains(d.Steps[0].How, c.none) {
			t.Errorf("%s: %+v", name, d.Steps)
		}
	}
}

// No step saves more CPU time than the kernel had, and an estimate is behind what was measured.
func TestEstimatesAreBoundedAndDoNotLead(t *testing.T) {
	r := job(470, func(r *profiling.Result) {
		r.Noise = noise(profiling.NoiseIRQ, 50)
		r.Syscalls = &profiling.Syscalls{Calls: []profiling.Syscall{{Name: profiling.PageFault, Count: 100, NS: 5e9,
			Split: map[profiling.Cause]profiling.Part{profiling.CauseFault: {Count: 100, NS: 5e9}}}}}
		r.Coverage = []profiling.Coverage{{Node: "n1", Collector: profiling.CollectSyscalls, SpanNS: 1000, ObservedNS: 48}}
	})
	var order []string
	for _, s := range Decide(r).Steps {
		if order = append(order, s.What); *s.Bound > 0.47+1e-9 {
			t.Errorf("%s saves %v of a job whose kernel had 0.47", s.What, *s.Bound)
		}
	}
	if got := strings.Join(order, " "); got != ProfiledKernel+" "+MoveInterrupts+" "+LargerPages {
		t.Errorf("order: %s", got)
	}
}
