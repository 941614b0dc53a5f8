// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/build"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/graph"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/kconfig"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/verdict"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/vm"
)

func plainWorld(t *testing.T) *world {
	t.Helper()
	return newWorld(t, func(r *build.Recipe) { r.Optimisation, r.Slimming = build.OptimiseO2, "" })
}

func TestMeasurePlain(t *testing.T) {
	w := plainWorld(t)
	for _, c := range []struct {
		data Data
		seed int64
		want string
	}{
		{Train, 1, "boot, compile plain, configure plain, measure plain train, source"},
		{Train, 1, ""},
		{Test, 7, "measure plain test"},
	} {
		w.worked = nil
		measured, err := w.pipe.MeasurePlain(t.Context(), w.runner(), "fake-tune", c.data)
		slices.Sort(w.worked)
		if worked := strings.Join(w.worked, ", "); err != nil || worked != c.want {
			t.Errorf("%s: worked on %s, want %s; %v", c.data, worked, c.want, err)
		}
		if s := measured.Samples; len(s) != 2 || s[0].Metric != verdict.KernelWeighed || s[0].Seed != c.seed || s[0].Values[0] != 1280 {
			t.Errorf("%s: %+v", c.data, s)
		}
	}
	if status, err := w.pipe.Store.Status("fake-tune", ""); err != nil || status.Name != "fake-tune" {
		t.Errorf("%+v, %v", status, err)
	}
	if _, err := newWorld(t, nil).pipe.MeasurePlain(t.Context(), w.runner(), "x", Train); err == nil || !strings.Contains(err.Error(), "without a profile") {
		t.Errorf("a recipe with a profile: %v", err)
	}
}

// What a configuration is to blame for is told from what the bench and the disk are.
func TestFaultOfAConfiguration(t *testing.T) {
	lost := &kconfig.LostError{Lost: []kconfig.Lost{{Option: kconfig.Option{Symbol: "MEMCG", Value: "y", File: "f", Line: 3}}}}
	for name, c := range map[string]struct {
		at    string
		err   error
		fault string // empty: the error itself
	}{
		"kconfig":        {"configure plain", blamed(lost), "there is no such kernel: kconfig does not take CONFIG_MEMCG=y"},
		"compiler":       {"compile plain", unbuildable{errors.New("kernel: make bzImage: exit status 2"), "mm/x.c:1: error: no such thing"}, "there is no such kernel: mm/x.c:1: error: no such thing"},
		"boot":           {"boot", panicked, "the kernel does not boot: kernel panic"},
		"hang":           {"boot", &vm.BootError{Reason: vm.ReasonHang}, "the kernel does not boot: no end"},
		"node lost":      {"compile plain", &graph.JobError{Job: "7", State: "NODE_FAIL"}, ""},
		"no slurmctld":   {"configure plain", errors.New("sbatch: error: Unable to contact slurm controller"), ""},
		"other inputs":   {"compile plain", errors.New("this machine has other inputs than the one that asks"), ""},
		"no source":      {"source", errors.New("no such package"), ""},
		"no emulator":    {"boot", errors.New("qemu: not found"), ""},
		"disk full":      {"compile plain", fmt.Errorf("make: %w", syscall.ENOSPC), ""},
		"disk full boot": {"boot", &vm.BootError{Reason: vm.ReasonReset, Err: syscall.ENOSPC}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := plainWorld(t)
			w.fail[c.at] = c.err
			_, err := w.pipe.MeasurePlain(t.Context(), w.runner(), "fake-tune", Train)
			var fault *Fault
			if errors.As(err, &fault) != (c.fault != "") || err == nil || !strings.Contains(err.Error(), c.fault) {
				t.Errorf("%v, want the fault %q", err, c.fault)
			}
		})
	}
}

func TestRecipeAsOptionsWantIt(t *testing.T) {
	recipe := build.Recipe{Optimisation: build.OptimisePGO, Slimming: build.SlimmingTrace, Training: "sha256:1", Keep: []string{"PCI"}, Overrides: []string{"cores"},
		Exclude: []build.Exclusion{{Object: "a.o"}}, Workload: "w"}
	got := Options{Plain: true, Overrides: []string{"a"}}.changed(recipe)
	if got.NeedsRun() || got.Training != "" || got.Keep != nil || got.Exclude != nil || got.Workload != "w" || !slices.Equal(got.Overrides, []string{"cores", "a"}) {
		t.Errorf("%+v", got)
	}
	if small := (Options{Plain: true}).changed(build.Recipe{Optimisation: build.OptimiseSize}); small.Optimisation != build.OptimiseSize {
		t.Errorf("-Os takes no profile and stays: %+v", small)
	}
	if same := (Options{}).changed(recipe); same.Training == "" || !slices.Equal(same.Overrides, recipe.Overrides) {
		t.Errorf("%+v", same)
	}
}
