// SPDX-License-Identifier: Apache-2.0

package kernelreport

import (
	"fmt"
	"strings"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/build"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/pgo"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/slim"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/verdict"
)

const operations = 50000

// shares of what the slim kernel needs, by kernel, in the order of workloads:
// about what was measured by hand.
var (
	workloads = []string{"io-write8", "ext4-write", "syscalls", "tcp-roundtrip"}
	slimNeeds = []float64{1280, 4522, 40696, 20212}
	shares    = map[string][]float64{
		"stock":     {1.400, 1.450, 1.520, 1.520},
		"slim":      {1, 1, 1, 1},
		"slim-os":   {1.153, 1.141, 1.260, 1.160},
		"clang":     {0.981, 1.006, 1.047, 1.006},
		"io-kernel": {0.955, 0.936, 1.031, 1.071},
		"net":       {1.014, 1.039, 1.003, 0.933},
	}
	names = []string{"stock", "slim", "slim-os", "clang", "io-kernel", "net"}
)

func digestOf(letter string) string { return "sha256:" + strings.Repeat(letter, 64) }

func kernelFacts(name, title string, image, text int64) Kernel {
	return Kernel{
		Kernel: verdict.Kernel{Name: name, Mitigations: []string{"spectre_v2: Retpolines", "meltdown: PTI"}},
		Title:  title, Release: "6.1.192-" + name, BuildID: strings.Repeat("5f", 20),
		Size: Size{
			Image: image, FunctionText: text, Functions: 17000, Objects: 1275, Options: 612,
			Sections: []Section{{".text", text * 9 / 10}, {".text.unlikely", text / 10}},
		},
		Provenance: Provenance{
			Source: build.Part{Name: "linux-source-6.1 6.1.192-1", Digest: digestOf("a")}, ConfigDigest: digestOf("b"),
			Fragments: []build.Part{{Name: "base", Digest: digestOf("1")}, {Name: "hardening", Digest: digestOf("2")}},
			Compiler:  "gcc-12", Version: "12.2.0-14+deb12u1", Flags: []string{"-O2"},
			ImageDigest: digestOf("c"), Builder: "kernel-factory v0.2 on build1",
			InputsKey: digestOf("d"),
		},
	}
}

func fixture() Facts {
	f := Facts{
		Subject: "io-kernel", Application: "io", Current: "slim", Stock: "stock", Slim: "slim",
		Command: "make bench-kernels", Machine: "build1, QEMU 7.2", Made: "2026-11-20T15:00:00Z",
		Kernels: []Kernel{
			kernelFacts("stock", "Debian's own kernel", 8_300_000, 12_900_000),
			kernelFacts("slim", "slim, plain -O2", 4_100_000, 4_790_000),
			kernelFacts("slim-os", "slim, -Os", 3_500_000, 3_780_000),
			kernelFacts("clang", "slim, clang 19", 4_300_000, 5_040_000),
			kernelFacts("io-kernel", "slim, trained on I/O", 3_400_000, 3_390_000),
			kernelFacts("net", "slim, trained on TCP", 3_500_000, 3_450_000),
		},
		Applications: []verdict.Application{
			{Name: "io", Test: verdict.Run{Workload: "io-write8", Seed: 7, Size: operations}, Kernel: "io-kernel"},
			{Name: "net", Test: verdict.Run{Workload: "tcp-roundtrip", Seed: 7, Size: operations}, Kernel: "net"},
			{Name: "lmbench", Test: verdict.Run{Workload: "syscalls", Seed: 7, Size: operations}},
		},
		Checks:   []verdict.CheckRun{{Workload: "fsx", Kernel: "io-kernel", Passed: true}, {Workload: "syscalls", Kernel: "io-kernel", Passed: true, NotChecked: true}},
		Required: []string{"fsx"},
		Rules:    verdict.DefaultRules(),
		Options: []Option{
			{Symbol: "SND", Prompt: "Sound card support", Decision: Removed, Reason: "nothing of it ran", Objects: 14, Bytes: 88_000},
			{Symbol: "PCI", Decision: Kept, Reason: "kept: the nodes' cards are on it", Objects: 31, Bytes: 120_400},
			{Symbol: "AUDIT", Decision: Kept, Reason: "boot failed without it", Bytes: 9000},
		},
		Symbols: &Symbols{
			HotCount: 2100, HotBytes: 610_000, ColdCount: 14900, ColdBytes: 2_780_000,
			Hottest: []Symbol{{"entry_SYSCALL_64", "arch/x86/entry/entry_64.o", 230, 201, 1_200_000}, {"vfs_write", "fs/read_write.o", 812, 390, 400_100}},
			Coldest: []Symbol{{Name: "do_coredump", Object: "fs/coredump.o", Bytes: 9100}},
		},
	}
	f.Slimming = &Slimming{Proposed: 2, Configurations: 4, Kernels: 3, ObjectsGone: 14, CodeGone: 88_000, TextBefore: 4_878_000, TextAfter: 4_790_000,
		Missing: []slim.Missing{{Node: "n1", Module: "ixgbe", Device: "pci:8086:10fb"}},
		Runs: []SlimmingRun{{Run: 3, Results: []build.Part{{Name: "n1", Digest: digestOf("7")}, {Name: "n2", Digest: digestOf("8")}}, Releases: []string{"6.1.0-56-amd64"}, Named: 243, Found: 210,
			Unknown: []string{"nfs_file_read"}, Objects: []string{"fs/aio.o"}, Refused: []string{"io_uring_setup"}, Lacking: []string{"nfs"}}}}
	f.Cost = []Cost{{"source", 21.4, 90_000_000, true, true}, {"plain", 900, 4_100_000, true, true}, {"optimised", 1250.25, 3_400_000, false, false}}
	f.Kernels[4].Profile = &Profile{Objects: 1268, Excluded: []build.Exclusion{{Object: "lib/odd.o", Reason: "does not compile with its profile: internal compiler error"}},
		Complaints: pgo.Complaints{Mismatched: []string{"fs/namei.o: path_openat"}, Moved: []string{"mm/mmap.o: vma_link"}, Missing: []string{"lib/crc32.o", "arch/x86/entry/vdso/vma.o"}}}
	f.Kernels[4].Trained = []verdict.Run{{Workload: "io-write8", Seed: 1, Size: 20000}}
	f.Kernels[4].Provenance.ProfileDigest = digestOf("e")
	f.Kernels[5].Provenance.Patches = []build.Patch{{Name: "fix.patch", Digest: digestOf("f"), Upstream: "in 6.4 as 0123abcd"}}
	for i, w := range workloads {
		f.Workloads = append(f.Workloads, Workload{w, "workload " + w, fmt.Sprintf("operation of %s", w)})
		for _, k := range names {
			f.Samples = append(f.Samples, samplesOf(w, k, slimNeeds[i]*shares[k][i])...)
		}
	}
	return f
}

// samplesOf one run: ext4 has a disk, and so a spread.
func samplesOf(workload, kernel string, needs float64) []verdict.Sample {
	var out []verdict.Sample
	for _, m := range []struct {
		metric, unit string
		share        float64
	}{
		{verdict.KernelWeighed, "instructions/operation", 1}, {verdict.KernelInstructions, "instructions/operation", 0.75}, {verdict.Strings, "strings/operation", 0.001}, {verdict.StringBytes, "bytes/operation", 0.25}, {verdict.TakenBranches, "branches/operation", 0.09},
		{verdict.L1IMisses, "misses/operation", 0.002}, {verdict.L1DMisses, "misses/operation", 0.05},
		{verdict.TextLines, "lines", 0.5}, {verdict.UserInstructions, "instructions/operation", 0.15}, {verdict.UserWeighed, "instructions/operation", 0.2},
	} {
		metric, share := m.metric, m.share
		s := verdict.Sample{
			Workload: workload, Metric: metric, Unit: m.unit, Kernel: kernel, Exact: true,
			Values: []float64{needs * share}, Size: operations, Seed: 7, Operations: operations,
		}
		if workload == "ext4-write" {
			s.Exact, s.Values = false, []float64{needs * share, needs * share * 1.0004, needs * share * 0.9997, needs * share * 1.0001}
		}
		if workload != "syscalls" {
			out = append(out, s)
			continue
		}
		for i, part := range []string{"fork", "null call"} {
			s.Part, s.Values = part, []float64{needs * share / float64(i*99+1)}
			out = append(out, s)
		}
	}
	return out
}

func bench() Facts {
	f := fixture()
	f.Title, f.Subject, f.Application, f.Current = "Kernels side by side", "", "", ""
	f.Options, f.Symbols, f.Slimming, f.Cost = nil, nil, nil, nil
	return f
}
