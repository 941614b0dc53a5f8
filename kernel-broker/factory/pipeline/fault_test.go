// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/build"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/graph"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/pgo"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/vm"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/workload"
)

var (
	panicked = &vm.BootError{Reason: vm.ReasonPanic, Said: "Kernel panic - not syncing: VFS: no root", Tail: "mounting\nKernel panic - not syncing: VFS: no root\n---[ end"}
	unwell   = &workload.FailedError{Workload: "write8", Part: "run", Output: "opening\nwrite: I/O error"}
)

// A kernel that does not do what it has to is a candidate that failed, whatever
// step finds it out, and nothing is published.
func TestFaultOfTheKernel(t *testing.T) {
	for name, c := range map[string]struct {
		at              string
		err             error
		reason, console string
		after           string // what is not done any more
	}{
		"no boot":               {"boot", panicked, "the kernel does not boot: kernel panic: Kernel panic - not syncing: VFS: no root", panicked.Tail, "measure optimised"},
		"hangs, says nothing":   {"boot", &vm.BootError{Reason: vm.ReasonHang}, "the kernel does not boot: no end within the limit", "", "measure optimised"},
		"counting kernel":       {"profile", fmt.Errorf("workload: %w", unwell), "the workload fails on the kernel: run failed: write: I/O error (the instrumented kernel, which", unwell.Output, "compile optimised"},
		"kernel with a map":     {"trace", panicked, "VFS: no root (the traced kernel, which the candidate is made by)", panicked.Tail, "slim"},
		"candidate under trace": {"trace optimised", unwell, "the workload fails on the kernel: run failed: write: I/O error", unwell.Output, "publish"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			w.fail[c.at] = c.err
			candidate, worked, err := w.build()
			if err != nil || candidate == nil {
				t.Fatalf("worked on %s, %v", worked, err)
			}
			if candidate.Outcome != Failed || !strings.Contains(candidate.Reason, c.reason) || candidate.Console != c.console || candidate.Report != "" {
				t.Errorf("%+v", candidate)
			}
			if candidate.Published != "" || w.versions != nil || strings.Contains(worked, c.after) {
				t.Errorf("worked on %s, published %q", worked, candidate.Published)
			}
			if _, err := os.Stat(filepath.Join(candidate.Kernel, "bzImage")); err != nil {
				t.Error(err)
			}
			list, err := w.pipe.Candidates.List("fake")
			if err != nil || !slices.Equal(list, []Candidate{*candidate}) {
				t.Errorf("candidates %+v, %v", list, err)
			}
			if status, err := StoreIn(w.dir).Status("fake", ""); err != nil || status.State != graph.Failed {
				t.Errorf("the status says %s, %v", status.State, err)
			}
			// It is tried again, and may be mended by another bench.
			delete(w.fail, c.at)
			if again, _, err := w.build(); err != nil || !again.Benefit() || again.Console != "" {
				t.Errorf("then: %+v, %v", again, err)
			}
		})
	}
}

// The bench's own error is nobody's fault, also beside a kernel's.
func TestFaultOfTheBench(t *testing.T) {
	w := newWorld(t, nil)
	broken := errors.New("qemu: not found")
	w.fail["boot"] = broken
	if candidate, _, err := w.build(); candidate != nil || !errors.Is(err, broken) {
		t.Errorf("%+v, %v", candidate, err)
	}
	both := errors.Join(errors.Join(&graph.StepError{Step: "boot", Detail: []byte(`{"kernel":"k","stage":"boot","reason":"panic"}`)}), broken)
	found, rest := faults(both)
	if len(found) != 1 || found[0].Error() != "the kernel does not boot: panic" || !errors.Is(rest, broken) || strings.Contains(rest.Error(), "panic") {
		t.Errorf("%+v, %v", found, rest)
	}
	if found, rest := faults(&graph.StepError{Detail: []byte(`"of another kind"`), Err: broken}); found != nil || !errors.Is(rest, broken) {
		t.Errorf("%+v, %v", found, rest)
	}
	if found, rest := faults(nil); found != nil || rest != nil {
		t.Errorf("%+v, %v", found, rest)
	}
}

// A full disk of this host cuts what a guest leaves short. The kernel is not to
// blame: a measurement that says so would be kept, and the kernel refused for it.
func TestFullDiskIsNoFaultOfTheKernel(t *testing.T) {
	full := &vm.BootError{Reason: vm.ReasonReset, Err: fmt.Errorf("the result: %w", syscall.ENOSPC)}
	if fault := faultOf(t.Context(), fmt.Errorf("workload: %w", full)); fault != nil {
		t.Errorf("%+v", fault)
	}
	broken := &build.BuildError{Target: "bzImage", Err: errors.New("exit status 2")}
	if brokenBuild(t.Context(), fmt.Errorf("kernel: %w", broken)) != broken {
		t.Error("an option's build that fails is an answer")
	}
	broken.Err = errors.Join(broken.Err, syscall.ENOSPC)
	if brokenBuild(t.Context(), fmt.Errorf("kernel: %w", broken)) != nil {
		t.Error("a full disk is an answer about an option")
	}
	w := newWorld(t, nil)
	w.fail["boot"] = full
	if candidate, _, err := w.build(); candidate != nil || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("%+v, %v", candidate, err)
	}
}

// A build takes hours, in which a package of the workload may be updated. What ran
// with the new one must not be kept as a result of the old one.
func TestBenchThatChangesMeanwhile(t *testing.T) {
	for _, at := range []string{"trace", "profile", "boot", "measure optimised test", "slim"} {
		t.Run(at, func(t *testing.T) {
			w := newWorld(t, nil)
			w.after = func(done string) {
				if done == at {
					w.bench, w.keeps = "2", "2"
				}
			}
			_, _, err := w.build()
			if err == nil || !strings.Contains(err.Error(), "changed while") || w.versions != nil {
				t.Fatalf("%v, published %v", err, w.versions)
			}
			again, worked, err := w.build()
			if err != nil || !again.Benefit() || !strings.Contains(worked, at) {
				t.Errorf("then: %+v, %v, worked on %s", again, err, worked)
			}
		})
	}
}

// A kernel on which the workload fails while it is measured has a verdict, and
// its last words too.
func TestLastWordsWhileMeasured(t *testing.T) {
	w := newWorld(t, nil)
	w.wrong, w.console = "byte 17 is 0x00", "comparing\nbyte 17 is 0x00"
	if candidate, _, err := w.build(); err != nil || candidate.Console != w.console || candidate.Report == "" {
		t.Errorf("%+v, %v", candidate, err)
	}
}

// The profile is judged by the very kernel without one, before anything is
// measured.
func TestProfileOfNoUse(t *testing.T) {
	w := newWorld(t, nil)
	w.profiled = pgo.Sections{Text: 880, Unlikely: 120}
	candidate, worked, err := w.build()
	if candidate != nil || !errors.Is(err, pgo.ErrUnfit) || !strings.Contains(err.Error(), `step "fit": .text.unlikely is 12.0 % of the text and was 3.0 % without`) {
		t.Errorf("%+v, %v", candidate, err)
	}
	if strings.Contains(worked, "boot") || strings.Contains(worked, "measure optimised") {
		t.Errorf("worked on %s", worked)
	}
}
