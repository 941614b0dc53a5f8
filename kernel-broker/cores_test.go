// SPDX-License-Identifier: Apache-2.0

package kernelbroker_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// machine makes a topology of packages with cores of threads. Linux numbers the first threads of all cores, and then the second
// ones; or, as some firmware does, the threads of one core in a row.
func machine(packages, cores, threads int, inARow bool) kb.Topology {
	var t kb.Topology
	total := packages * cores
	for core := range total {
		c := kb.Core{Package: core / cores}
		for thread := range threads {
			if inARow {
				c.CPUs = append(c.CPUs, core*threads+thread)
			} else {
				c.CPUs = append(c.CPUs, core+thread*total)
			}
		}
		t = append(t, c)
	}
	return t
}

// interleaved is a machine whose packages take turns in the numbers of CPUs.
func interleaved() kb.Topology {
	return kb.Topology{{[]int{0, 4}, 0}, {[]int{1, 5}, 1}, {[]int{2, 6}, 0}, {[]int{3, 7}, 1}}
}

func TestSplit(t *testing.T) {
	for _, c := range []struct {
		name                string
		topology            kb.Topology
		system              uint32
		wanted, application string
	}{
		{"one socket", machine(1, 4, 1, false), 1, "0", "1-3"},
		{"two of four", machine(1, 4, 1, false), 2, "0-1", "2-3"},
		{"threads far apart", machine(1, 4, 2, false), 1, "0,4", "1-3,5-7"},
		{"threads in a row", machine(1, 4, 2, true), 1, "0-1", "2-7"},
		{"two sockets, one core", machine(2, 4, 1, false), 1, "0", "1-7"},
		{"two sockets, a core of each", machine(2, 4, 1, false), 2, "0,4", "1-3,5-7"},
		{"two sockets, three cores", machine(2, 4, 1, false), 3, "0-1,4", "2-3,5-7"},
		{"sockets and threads", machine(2, 2, 2, false), 2, "0,2,4,6", "1,3,5,7"},
		{"interleaved sockets", interleaved(), 2, "0-1,4-5", "2-3,6-7"},
		{"a thread is offline", kb.Topology{{[]int{0}, 0}, {[]int{1, 3}, 0}}, 1, "0", "1,3"},
		{"sockets by their lowest CPU", kb.Topology{{[]int{2}, 0}, {[]int{3}, 0}, {[]int{0}, 7}, {[]int{1}, 7}}, 2, "0,2", "1,3"},
		{"unequal sockets", kb.Topology{{[]int{0}, 0}, {[]int{1}, 1}, {[]int{2}, 1}, {[]int{3}, 1}}, 3, "0-2", "3"},
	} {
		split, err := c.topology.Split(c.system)
		if err != nil || kb.FormatCPUs(split.System) != c.wanted || kb.FormatCPUs(split.Application) != c.application {
			t.Errorf("%s: %+v, %v", c.name, split, err)
		}
	}
	for _, c := range []struct {
		topology kb.Topology
		system   uint32
	}{{machine(1, 4, 2, false), 4}, {machine(1, 4, 2, false), 5}, {machine(1, 1, 2, false), 1}, {nil, 1}, {machine(1, 4, 1, false), 0}} {
		if split, err := c.topology.Split(c.system); !errors.Is(err, kb.ErrFailedPrecondition) {
			t.Errorf("%d of %d cores: %+v, %v", c.system, len(c.topology), split, err)
		}
	}
}

// Every split is a partition: no CPU is lost or used twice, threads stay together, the lowest CPU is the system's, and no side
// is empty. The order in which the cores are given does not matter.
func TestSplitIsAPartition(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 1))
		topology := machine(1+r.IntN(4), 1+r.IntN(24), 1+r.IntN(4), r.IntN(2) == 0)
		if r.IntN(3) == 0 { // packages without an order, CPUs that are offline
			for i := range topology {
				topology[i].Package = r.IntN(3) - 1
				topology[i].CPUs = topology[i].CPUs[:1+r.IntN(len(topology[i].CPUs))]
			}
		}
		system := uint32(1 + r.IntN(len(topology)+1))
		split, err := topology.Split(system)
		if int(system) >= len(topology) {
			if err == nil {
				t.Fatalf("seed %d: %d of %d cores: %+v", seed, system, len(topology), split)
			}
			continue
		}
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		var all []int
		cores := 0
		for _, core := range topology {
			all = append(all, core.CPUs...)
			mine := slices.Contains(split.System, core.CPUs[0])
			if mine {
				cores++
			}
			for _, cpu := range core.CPUs {
				if slices.Contains(split.System, cpu) != mine || slices.Contains(split.Application, cpu) == mine {
					t.Fatalf("seed %d: CPU %d of core %v: %+v", seed, cpu, core, split)
				}
			}
		}
		slices.Sort(all)
		if cores != int(system) || split.System[0] != all[0] || len(split.Application) == 0 ||
			!slices.Equal(slices.Sorted(slices.Values(slices.Concat(split.System, split.Application))), all) {
			t.Fatalf("seed %d: %d system cores of %+v: %+v", seed, system, topology, split)
		}
		r.Shuffle(len(topology), func(i, j int) { topology[i], topology[j] = topology[j], topology[i] })
		if again, _ := topology.Split(system); !slices.Equal(again.System, split.System) {
			t.Fatalf("seed %d: in another order %+v, not %+v", seed, again, split)
		}
	}
}

// The packages take turns as in Slurm's selection of specialised cores.
func TestSplitTakesTurns(t *testing.T) {
	topology := machine(3, 5, 1, false)
	for system := uint32(1); system < 15; system++ {
		split, err := topology.Split(system)
		if err != nil {
			t.Fatal(err)
		}
		var slurms []int // cores in the outer loop, sockets in the inner one
		for core := 0; len(slurms) < int(system); core++ {
			for socket := 0; socket < 3 && len(slurms) < int(system); socket++ {
				slurms = append(slurms, socket*5+core)
			}
		}
		slices.Sort(slurms)
		if !slices.Equal(split.System, slurms) {
			t.Errorf("%d cores: %v, Slurm takes %v", system, split.System, slurms)
		}
	}
}

func TestCoreArguments(t *testing.T) {
	split, err := machine(2, 4, 2, false).Split(2)
	if err != nil {
		t.Fatal(err)
	}
	want := "isolcpus=managed_irq,1-3,5-7,9-11,13-15 nohz_full=1-3,5-7,9-11,13-15 rcu_nocbs=1-3,5-7,9-11,13-15 irqaffinity=0,4,8,12 " +
		"systemd.cpu_affinity=0,4,8,12 kernelbroker.system_cpus=0,4,8,12"
	if got := strings.Join(split.Arguments(), " "); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

func TestParseCPUs(t *testing.T) {
	for list, want := range map[string][]int{"0": {0}, "0-3,8": {0, 1, 2, 3, 8}, "1,3-4": {1, 3, 4}, "8191": {8191}} {
		got, err := kb.ParseCPUs(list)
		if err != nil || !slices.Equal(got, want) || kb.FormatCPUs(got) != list {
			t.Errorf("%s: %v, %v", list, got, err)
		}
	}
	for _, list := range []string{"", ",", "0-", "-1", "3-1", "1,1", "2,1", "0-3,3", "8192", "0-8192", "a", "1 2", "0x1", "+1", strings.Repeat("0,", 20000)} {
		if got, err := kb.ParseCPUs(list); !errors.Is(err, kb.ErrInvalid) {
			t.Errorf("%.20q: %v, %v", list, got, err)
		}
	}
}

func FuzzParseCPUs(f *testing.F) {
	f.Add("0-3,8")
	f.Add("1,2")
	f.Add("00-01")
	f.Fuzz(func(t *testing.T, list string) {
		cpus, err := kb.ParseCPUs(list)
		if err != nil {
			return
		}
		again, err := kb.ParseCPUs(kb.FormatCPUs(cpus))
		if len(cpus) == 0 || !slices.IsSorted(cpus) || err != nil || !slices.Equal(again, cpus) {
			t.Errorf("%q is %v, and then %v, %v", list, cpus, again, err)
		}
	})
}

func TestSystemCoresOfAKernel(t *testing.T) {
	ref := kb.Ref{Profile: "mitgcm", Version: 1}
	if err := kb.ValidateSystemCores(ref, 2, []string{"quiet", "nohz=off"}); err != nil {
		t.Error(err)
	}
	for name, err := range map[string]error{
		"0 system cores are not within":          kb.ValidateSystemCores(ref, 0, nil),
		"2000 system cores are not within":       kb.ValidateSystemCores(ref, 2000, nil),
		"every node returns to stock":            kb.ValidateSystemCores(kb.Ref{Profile: kb.StockProfile, Version: 1}, 1, nil),
		`"nohz_full=1"`:                          kb.ValidateSystemCores(ref, 1, []string{"quiet", "nohz_full=1"}),
		`"rcu-nocbs=1"`:                          kb.ValidateSystemCores(ref, 1, []string{"rcu-nocbs=1"}),
		`"systemd.cpu_affinity=0"`:               kb.ValidateSystemCores(ref, 1, []string{"systemd.cpu_affinity=0"}),
		`"nr_cpus=2": system cores are set, and`: kb.ValidateSystemCores(ref, 1, []string{"nr_cpus=2"}),
	} {
		if !errors.Is(err, kb.ErrInvalid) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := kb.ValidateArguments([]string{"kernelbroker.system_cpus=0"}); !errors.Is(err, kb.ErrInvalid) || !strings.Contains(err.Error(), "the node's agent") {
		t.Errorf("a profile names the system CPUs: %v", err)
	}
	// What is composed needs these of a kernel, and so a kernel without them is refused.
	err := kb.CheckHonoured(kb.Kernel{SystemCores: 1}.ParametersOfNode(), func(string) bool { return false })
	for _, symbol := range []string{"CONFIG_CPU_ISOLATION", "CONFIG_NO_HZ_FULL", "CONFIG_RCU_NOCB_CPU", "CONFIG_SMP"} {
		if err == nil || !strings.Contains(err.Error(), symbol) {
			t.Errorf("a kernel without %s: %v", symbol, err)
		}
	}
	if p := (kb.Kernel{}).ParametersOfNode(); p != nil {
		t.Errorf("without system cores: %v", p)
	}
}

// What an agent composes must not be what it keeps.
func TestComposedArgumentsAreNotKept(t *testing.T) {
	split := kb.CoreSplit{System: []int{0}, Application: []int{1}}
	for _, argument := range split.Arguments() {
		if kb.NodeParameters().Has(argument) {
			t.Errorf("%s is kept", argument)
		}
	}
}

func TestCheckRoot(t *testing.T) {
	k, node := kb.Kernel{Profile: "mitgcm", Version: 1, Architecture: "x86_64"}, kb.Inventory{Architecture: "x86_64", InitrdRoot: "UUID=7c1d"}
	if err := k.CheckFits(node); !errors.Is(err, kb.ErrFailedPrecondition) || !strings.Contains(err.Error(), "brings no initrd, and only one finds the node's root UUID=7c1d") {
		t.Errorf("without an initrd: %v", err)
	}
	k.InitrdDigest = "sha256:aa"
	if err := k.CheckFits(node); err != nil {
		t.Errorf("with its own: %v", err)
	}
	// Stock's drivers may be modules, another kernel's are what its manifest names.
	stock, modular := kb.Kernel{Profile: kb.StockProfile, Version: 1}, kb.Inventory{InitrdModule: "virtio_blk"}
	if err := stock.CheckRoot(modular); !errors.Is(err, kb.ErrFailedPrecondition) || !strings.Contains(err.Error(), "only one has the module virtio_blk") {
		t.Errorf("stock: %v", err)
	}
	k.InitrdDigest, stock.InitrdDigest = "", "sha256:bb"
	if err := errors.Join(k.CheckRoot(modular), stock.CheckRoot(modular)); err != nil {
		t.Error(err)
	}
	for _, root := range []string{"UUID=7c1d\n", "a b", strings.Repeat("x", 300)} {
		node.InitrdRoot = root
		if err := node.Validate(); !errors.Is(err, kb.ErrInvalid) {
			t.Errorf("%.20q: %v", root, err)
		}
	}
}

func TestCheckCores(t *testing.T) {
	k := kb.Kernel{Profile: "mitgcm", Version: 1, Architecture: "x86_64", SystemCores: 2}
	for cores, words := range map[uint32]string{
		0: "the node's agent reports no cores", 1: "of 1 cores none is left for the application with 2 kept for the system",
		2: "of 2 cores none is left", 3: "", 64: "",
	} {
		err := k.CheckFits(kb.Inventory{Architecture: "x86_64", Cores: cores})
		if words == "" && err != nil || words != "" && (!errors.Is(err, kb.ErrFailedPrecondition) || !strings.Contains(err.Error(), words)) {
			t.Errorf("%d cores: %v", cores, err)
		}
	}
	k.SystemCores = 0
	if err := k.CheckFits(kb.Inventory{Architecture: "x86_64"}); err != nil {
		t.Errorf("without the setting: %v", err)
	}
}
