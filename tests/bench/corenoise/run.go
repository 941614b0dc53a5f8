// SPDX-License-Identifier: Apache-2.0

package corenoise

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/build"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/vm"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
	"github.com/kernelbroker/kernelbroker/tests/bench/figures"
)

// Options of a run.
type Options struct {
	// Kernel is a folder as the factory leaves it, Known the source of the thread that computes.
	Kernel, Known string
	Rounds        int
	// Seconds that the threads compute.
	Seconds int
	// Dir is the folder of the run. It is removed before.
	Dir string
}

// Result of a run.
type Result struct {
	Kernel  string    `json:"kernel"`
	Command string    `json:"command"`
	Begun   time.Time `json:"begun"`
	Rounds  int       `json:"rounds"`
	Seconds int       `json:"seconds"`
	// Arguments of the kernel with a system core.
	Arguments []string `json:"arguments"`
	// Lines are what the collector saw beside a thread that computes, Tracer what rtla
	// saw beside the tracer's own.
	Lines  []Line `json:"lines"`
	Tracer []Line `json:"tracer"`
}

// Line is how often one cause took one core away, per second in which a thread wanted it.
type Line struct {
	CPU  uint32              `json:"cpu"`
	Kind profiling.NoiseKind `json:"kind"`
	Name string              `json:"name"`
	// Without and With a core for the system.
	Without figures.Spread `json:"without"`
	With    figures.Spread `json:"with"`
}

// all is the name of the line for all causes of a core.
const all = "all"

const (
	guestLimit = 20 * time.Minute
	// boots of a guest, until its timers work.
	boots = 5
)

// errCoarse: on a busy host the kernel may find that the emulator's timers are late.
// It uses none of them but the oldest then, and its tick never stops.
var errCoarse = errors.New("the kernel found no timer that it trusts")

// arguments of a kernel that keeps the first of a guest's cores for the system, as a node's agent composes them.
func arguments() ([]string, error) {
	var topology kb.Topology
	for cpu := range cores {
		topology = append(topology, kb.Core{CPUs: []int{cpu}})
	}
	split, err := topology.Split(1)
	return split.Arguments(), err
}

// Run boots the guests by turns.
func Run(ctx context.Context, o Options, progress io.Writer) (*Result, error) {
	if err := os.RemoveAll(o.Dir); err != nil {
		return nil, fmt.Errorf("folder %q: %w", o.Dir, err)
	}
	if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		return nil, err
	}
	with, err := arguments()
	if err != nil {
		return nil, err
	}
	initrd, err := o.initrd(ctx)
	if err != nil {
		return nil, err
	}
	r := &Result{Begun: time.Now().UTC(), Rounds: o.Rounds, Seconds: o.Seconds, Arguments: with}
	var without, kept []seen
	for round := range o.Rounds {
		for _, turn := range []struct {
			name      string
			arguments []string
			to        *[]seen
		}{{"without", nil, &without}, {"with", with, &kept}} {
			fmt.Fprintf(progress, "round %d of %d, %s a core for the system\n", round+1, o.Rounds, turn.name)
			found, err := o.bootFine(ctx, initrd, turn.arguments, filepath.Join(o.Dir, fmt.Sprintf("%s-%d", turn.name, round+1)), progress)
			if err != nil {
				return nil, fmt.Errorf("round %d, %s a core for the system: %w", round+1, turn.name, err)
			}
			*turn.to = append(*turn.to, found)
		}
	}
	r.Lines = tabulate(without, kept, func(s seen) map[cause]float64 { return s.collector })
	r.Tracer = tabulate(without, kept, func(s seen) map[cause]float64 { return s.tracer })
	return r, nil
}

// seen is how often each cause came in one guest, per second.
type seen struct{ collector, tracer map[cause]float64 }

// self is this program's name in a guest.
const self = "/usr/bin/kb-bench"

func (o Options) initrd(ctx context.Context) (string, error) {
	own, err := os.Executable()
	if err != nil {
		return "", err
	}
	known := filepath.Join(o.Dir, "known")
	if said, err := exec.CommandContext(ctx, "gcc", "-O2", "-static", "-o", known, o.Known).CombinedOutput(); err != nil {
		return "", fmt.Errorf("program %q: %w: %s", o.Known, err, said)
	}
	rtla, err := exec.LookPath("rtla")
	if err != nil {
		return "", fmt.Errorf("%w: make deps-long installs it", err)
	}
	initrd := filepath.Join(o.Dir, "initrd")
	return initrd, vm.BuildInitrd(ctx, vm.Root{
		Files: []vm.File{
			{Path: self, Source: own, Mode: 0o755},
			{Path: "/usr/bin/known", Source: known, Mode: 0o755},
			{Path: "/usr/bin/rtla", Source: rtla, Mode: 0o755},
		},
		// Like the collector, rtla itself is on the first core.
		Script: fmt.Sprintf(`set -e
mkdir -p %s
mount -t cgroup2 cgroup %[1]s
echo +cpu >%[1]s/cgroup.subtree_control
%s cores guest --milliseconds %d >/out/log 2>&1
mount -t tracefs tracefs /sys/kernel/tracing
taskset 1 rtla osnoise top -q -c 1-%d -d %ds >/out/%s 2>>/out/log
`, hierarchy, self, 1000*o.Seconds, cores-1, o.Seconds, tracerFile),
	}, initrd)
}

// bootFine boots until the guest's timers work, in a folder for each boot.
func (o Options) bootFine(ctx context.Context, initrd string, arguments []string, dir string, progress io.Writer) (seen, error) {
	for boot := 1; ; boot++ {
		found, err := o.boot(ctx, initrd, arguments, filepath.Join(dir, strconv.Itoa(boot)))
		if boot == boots || !errors.Is(err, errCoarse) {
			return found, err
		}
		fmt.Fprintf(progress, "%v: the guest is booted again\n", err)
	}
}

func (o Options) boot(ctx context.Context, initrd string, arguments []string, dir string) (seen, error) {
	guest := vm.Guest{
		Kernel: filepath.Join(o.Kernel, build.ImageFile), Initrd: initrd, CPUs: cores, MemoryMiB: 1024, Limit: guestLimit,
		// The emulator's clock is the host's and steady, which the kernel cannot know; without a steady one it keeps every tick.
		Arguments: slices.Concat([]string{"no_timer_check", "tsc=reliable"}, arguments),
	}
	result, err := vm.Run(ctx, guest, dir)
	if err != nil {
		return seen{}, err
	}
	if result.ExitCode != 0 {
		said, err := vm.ReadEnd(filepath.Join(result.Files, "log"))
		return seen{}, errors.Join(err, fmt.Errorf("the guest ended with %d: %s", result.ExitCode, said))
	}
	console, err := os.ReadFile(result.Console)
	if err != nil {
		return seen{}, err
	}
	if isCoarse(console) {
		return seen{}, errCoarse
	}
	text, err := os.ReadFile(filepath.Join(result.Files, noiseFile))
	if err != nil {
		return seen{}, err
	}
	found := new(profiling.Noise)
	if err := json.Unmarshal(text, found); err != nil {
		return seen{}, err
	}
	table, err := os.ReadFile(filepath.Join(result.Files, tracerFile))
	if err != nil {
		return seen{}, err
	}
	tracer, err := parseTracer(string(table))
	return seen{collector: rates(found), tracer: tracer}, err
}

// isCoarse is true for the console of a kernel whose tick never stops.
func isCoarse(console []byte) bool {
	return bytes.Contains(console, []byte("Could not switch to high resolution mode"))
}

// cause of noise on one core.
type cause struct {
	cpu  uint32
	kind profiling.NoiseKind
	name string
}

// rates are how often each cause came, per second; the collector itself is none.
func rates(n *profiling.Noise) map[cause]float64 {
	found := map[cause]float64{}
	for _, c := range n.CPUs {
		seconds := float64(c.WantedNS) / 1e9
		if c.CPU == 0 || seconds == 0 {
			continue // threads only begin on the first core
		}
		found[cause{cpu: c.CPU, name: all}] = 0
		for _, s := range c.Sources {
			rate := float64(s.Count) / seconds
			found[cause{c.CPU, s.Kind, s.Name}] += rate
			found[cause{cpu: c.CPU, name: all}] += rate
		}
	}
	return found
}

// tabulate puts the rounds beside each other: a cause that did not come came never.
func tabulate(without, with []seen, of func(seen) map[cause]float64) []Line {
	samples := map[cause][2][]float64{}
	for side, rounds := range [][]seen{without, with} {
		for round, s := range rounds {
			for c, rate := range of(s) {
				both := samples[c]
				for i := range both {
					if both[i] == nil {
						both[i] = make([]float64, len(without))
					}
				}
				both[side][round] = rate
				samples[c] = both
			}
		}
	}
	var lines []Line
	for c, both := range samples {
		lines = append(lines, Line{CPU: c.cpu, Kind: c.kind, Name: c.name, Without: figures.Of(both[0]), With: figures.Of(both[1])})
	}
	slices.SortFunc(lines, func(a, b Line) int {
		return cmp.Or(cmp.Compare(a.CPU, b.CPU), cmp.Compare(b.Without.Median, a.Without.Median), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	return lines
}
