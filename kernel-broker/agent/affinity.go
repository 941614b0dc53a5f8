// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/proof"
)

// KeepToSystemCPUs restricts this process, and all that it starts from now on, to the system CPUs that the command line of this
// boot names; without any it changes nothing. systemd has done the same for its services by then.
func KeepToSystemCPUs(proc string) error {
	line, err := os.ReadFile(filepath.Join(proc, "cmdline"))
	if err != nil {
		return err
	}
	list := proof.Value(proof.Split(string(line)), kb.SystemCPUsParameter)
	if list == "" {
		return nil
	}
	cpus, err := kb.ParseCPUs(list)
	if err != nil {
		return fmt.Errorf("%s: %w", kb.SystemCPUsParameter, err)
	}
	return KeepTo(cpus)
}

// KeepTo restricts every thread of this process to these CPUs. A thread that begins meanwhile has the affinity of the one that began it, so it
// looks again until there is no new one.
func KeepTo(cpus []int) error {
	var set unix.CPUSet
	for _, cpu := range cpus {
		set.Set(cpu)
	}
	done := map[int]bool{}
	for {
		threads, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return err
		}
		fresh := false
		for _, thread := range threads {
			id, err := strconv.Atoi(thread.Name())
			if err != nil || done[id] {
				continue
			}
			fresh, done[id] = true, true
			if err := unix.SchedSetaffinity(id, &set); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("CPUs %s: %w", kb.FormatCPUs(cpus), err)
			}
		}
		if !fresh {
			return nil
		}
	}
}
