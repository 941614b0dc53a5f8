// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

const cpuFolder = "devices/system/cpu"

func onlineCPUs(sys string) ([]int, error) {
	return readCPUs(filepath.Join(sys, cpuFolder, "online"))
}

func readCPUs(path string) ([]int, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	cpus, err := kb.ParseCPUs(strings.TrimSpace(string(text)))
	if err != nil {
		return nil, fmt.Errorf("file %q: %w", path, err)
	}
	return cpus, nil
}

// Topology reads the cores of the CPUs that are online.
func Topology(sys string) (kb.Topology, error) {
	online, err := onlineCPUs(sys)
	if err != nil {
		return nil, err
	}
	var topology kb.Topology
	left := slices.Clone(online)
	for len(left) > 0 {
		core, err := coreOf(filepath.Join(sys, cpuFolder, fmt.Sprintf("cpu%d", left[0]), "topology"))
		if err != nil {
			return nil, err
		}
		if !slices.Contains(core.CPUs, left[0]) {
			return nil, fmt.Errorf("CPU %d does not belong to its own core %s: %w", left[0], kb.FormatCPUs(core.CPUs), kb.ErrInvalid)
		}
		// Other CPUs of the core may be offline, and no CPU is in two cores.
		core.CPUs = slices.DeleteFunc(core.CPUs, func(cpu int) bool { return !slices.Contains(left, cpu) })
		left = slices.DeleteFunc(left, func(cpu int) bool { return slices.Contains(core.CPUs, cpu) })
		topology = append(topology, core)
	}
	return topology, nil
}

// coreOf reads the topology folder of one CPU.
func coreOf(dir string) (kb.Core, error) {
	cpus, err := readCPUs(filepath.Join(dir, "core_cpus_list"))
	if errors.Is(err, fs.ErrNotExist) {
		cpus, err = readCPUs(filepath.Join(dir, "thread_siblings_list")) // before Linux 5.3
	}
	if err != nil {
		return kb.Core{}, err
	}
	path := filepath.Join(dir, "physical_package_id")
	text, err := os.ReadFile(path)
	if err != nil {
		return kb.Core{}, err
	}
	number, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return kb.Core{}, fmt.Errorf("file %q: %q: %w", path, text, kb.ErrInvalid)
	}
	return kb.Core{CPUs: cpus, Package: number}, nil
}

// countCores is 0 where the kernel shows no usable topology: such a node still runs, and refuses kernels with system cores.
func countCores(sys string) uint32 {
	topology, err := Topology(sys)
	if err != nil {
		return 0
	}
	return uint32(len(topology))
}

// applicationCPUs are those without a tick, by the running kernel; empty where it has none, which it prints as a blank line or
// "(null)", or cannot have any. They are shown to people only.
func applicationCPUs(sys string) string {
	cpus, err := readCPUs(filepath.Join(sys, cpuFolder, "nohz_full"))
	if err != nil {
		return ""
	}
	return kb.FormatCPUs(cpus)
}
