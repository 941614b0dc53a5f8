// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"os"
	"runtime"
	"strings"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// nodeCPUs counts the CPUs of the node. The agent itself may be restricted to the system's.
func nodeCPUs() int {
	text, err := os.ReadFile("/sys/devices/system/cpu/online")
	if err != nil {
		return runtime.NumCPU()
	}
	cpus, err := kb.ParseCPUs(strings.TrimSpace(string(text)))
	if err != nil {
		return runtime.NumCPU()
	}
	return len(cpus)
}
