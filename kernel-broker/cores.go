// SPDX-License-Identifier: Apache-2.0

package kernelbroker

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

const (
	// maxSystemCores of a node; a node with fewer cores is refused where its cores are known.
	maxSystemCores = 1024
	// maxCPU is above the number of any CPU of x86 Linux (NR_CPUS is at most 8192).
	maxCPU = 8191
	// maxCPUList is the longest list of CPUs that is read: every second of maxCPU.
	maxCPUList = 32 << 10
)

// SystemCPUsParameter names the system CPUs of a boot for the agent and the plugin on the node.
const SystemCPUsParameter = "kernelbroker.system_cpus"

// systemAffinity is the parameter by which systemd puts itself, and all that it starts, on some CPUs.
const systemAffinity = "systemd.cpu_affinity"

// coreParameters are composed from a node's topology for a kernel with system cores.
var coreParameters = Parameters{"isolcpus", "nohz_full", "rcu_nocbs", "irqaffinity", systemAffinity}

// cpuCountParameters change which CPUs a node has, and with that the meaning of the composed lists.
var cpuCountParameters = Parameters{"maxcpus", "nr_cpus", "nosmp", "possible_cpus"}

// Core is a processor core of a node: its CPUs (hardware threads) that are online, and its package (socket).
type Core struct {
	CPUs    []int
	Package int
}

// Topology is the cores of a node.
type Topology []Core

// CoreSplit is a node's CPUs by their use, each list rising.
type CoreSplit struct{ System, Application []int }

// Split keeps system cores for the system, each with all its threads. The first is the core of the lowest CPU, which boots the
// machine and always keeps its tick; the next are the first core of each other package, then the second of each, and so on, as
// Slurm selects cores with SchedulerParameters=spec_cores_first. The error wraps ErrFailedPrecondition if no core is left for
// the application.
func (t Topology) Split(system uint32) (CoreSplit, error) {
	if system == 0 || uint64(system) >= uint64(len(t)) {
		return CoreSplit{}, fmt.Errorf("%s for the system: %w", leavesNone(system, len(t)), ErrFailedPrecondition)
	}
	var split CoreSplit
	for i, core := range t.inOrder() {
		if i < int(system) {
			split.System = append(split.System, core.CPUs...)
		} else {
			split.Application = append(split.Application, core.CPUs...)
		}
	}
	slices.Sort(split.System)
	slices.Sort(split.Application)
	return split, nil
}

func leavesNone(system uint32, cores int) string {
	return fmt.Sprintf("of %d cores none is left for the application with %d kept", cores, system)
}

// inOrder returns the cores in the order in which they become system cores.
func (t Topology) inOrder() []Core {
	cores := make([]Core, 0, len(t))
	for _, core := range t {
		cores = append(cores, Core{CPUs: slices.Sorted(slices.Values(core.CPUs)), Package: core.Package})
	}
	slices.SortFunc(cores, func(a, b Core) int { return cmp.Compare(a.CPUs[0], b.CPUs[0]) })
	var packages []int // by their lowest CPU, which is Slurm's order of sockets
	turn := make([]int, len(cores))
	seen := map[int]int{}
	for i, core := range cores {
		if !slices.Contains(packages, core.Package) {
			packages = append(packages, core.Package)
		}
		turn[i] = seen[core.Package]
		seen[core.Package]++
	}
	order := make([]int, len(cores))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(turn[a], turn[b]),
			cmp.Compare(slices.Index(packages, cores[a].Package), slices.Index(packages, cores[b].Package)))
	})
	sorted := make([]Core, 0, len(cores))
	for _, i := range order {
		sorted = append(sorted, cores[i])
	}
	return sorted
}

// Arguments are the kernel arguments that make the split (ADR 0033).
func (s CoreSplit) Arguments() []string {
	system, application := FormatCPUs(s.System), FormatCPUs(s.Application)
	return []string{
		"isolcpus=managed_irq," + application, "nohz_full=" + application, "rcu_nocbs=" + application,
		"irqaffinity=" + system, systemAffinity + "=" + system, SystemCPUsParameter + "=" + system,
	}
}

// FormatCPUs writes rising numbers as the kernel does: 0-3,8.
func FormatCPUs(cpus []int) string {
	var text strings.Builder
	for i := 0; i < len(cpus); {
		end := i
		for end+1 < len(cpus) && cpus[end+1] == cpus[end]+1 {
			end++
		}
		if i > 0 {
			text.WriteByte(',')
		}
		text.WriteString(strconv.Itoa(cpus[i]))
		if end > i {
			fmt.Fprintf(&text, "-%d", cpus[end])
		}
		i = end + 1
	}
	return text.String()
}

// ParseCPUs reads a list as the kernel prints it, of at least one CPU.
func ParseCPUs(list string) ([]int, error) {
	wrong := fmt.Errorf("list of CPUs %.80q: %w", list, ErrInvalid)
	if len(list) > maxCPUList {
		return nil, wrong
	}
	var cpus []int
	for part := range strings.SplitSeq(list, ",") {
		low, high, isRange := strings.Cut(part, "-")
		first, err := strconv.ParseUint(low, 10, 16)
		last := first
		if err == nil && isRange {
			last, err = strconv.ParseUint(high, 10, 16)
		}
		if err != nil || last < first || last > maxCPU || len(cpus) > 0 && int(first) <= cpus[len(cpus)-1] {
			return nil, wrong
		}
		for cpu := first; cpu <= last; cpu++ {
			cpus = append(cpus, int(cpu))
		}
	}
	return cpus, nil
}

// ParametersOfNode are the parameters that the agent composes for this kernel from the node's topology; they are checked like
// arguments of the profile.
func (k Kernel) ParametersOfNode() []string {
	if k.SystemCores == 0 {
		return nil
	}
	return slices.Clone(coreParameters)
}

// SystemCoresNeed are the configuration symbols that a kernel with system cores needs, with CONFIG_.
func SystemCoresNeed() []string {
	var symbols []string
	for _, parameter := range coreParameters {
		for _, symbol := range HonouredBy(parameter) {
			symbols = append(symbols, "CONFIG_"+symbol)
		}
	}
	return symbols
}

// ValidateSystemCores checks a number of system cores against the profile's name and the kernel's own arguments.
func ValidateSystemCores(ref Ref, system uint32, arguments []string) error {
	switch {
	case system < 1 || system > maxSystemCores:
		return fmt.Errorf("%d system cores are not within 1 to %d: %w", system, maxSystemCores, ErrInvalid)
	case ref.IsStock():
		return fmt.Errorf("system cores: every node returns to stock, also one with too few cores: %w", ErrInvalid)
	}
	for _, argument := range arguments {
		if coreParameters.Has(argument) {
			return fmt.Errorf("kernel argument %q: system cores are set, so each node composes it from its own topology: %w", argument, ErrInvalid)
		}
		if cpuCountParameters.Has(argument) {
			return fmt.Errorf("kernel argument %q: system cores are set, and it changes which CPUs a node has: %w", argument, ErrInvalid)
		}
	}
	return nil
}

// CheckCores refuses a kernel with system cores on a node where no core would be left for the application, or whose agent does
// not report its cores. The error wraps ErrFailedPrecondition.
func (k Kernel) CheckCores(inventory Inventory) error {
	switch {
	case k.SystemCores == 0:
		return nil
	case inventory.Cores == 0:
		return fmt.Errorf("kernel %q: keeps %d cores for the system, and the node's agent reports no cores (it is older, or finds no topology in /sys): %w",
			k.Ref(), k.SystemCores, ErrFailedPrecondition)
	case k.SystemCores >= inventory.Cores:
		return fmt.Errorf("kernel %q: %s for the system: %w", k.Ref(), leavesNone(k.SystemCores, int(inventory.Cores)), ErrFailedPrecondition)
	}
	return nil
}
