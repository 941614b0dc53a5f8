// SPDX-License-Identifier: Apache-2.0

package corenoise

import (
	"fmt"
	"regexp"
	"strconv"

	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
)

const tracerFile = "osnoise.txt"

// tracerLine is a core's line of `rtla osnoise top`: its number, the periods, what of
// them the tracer ran (us), the noise (us), the rest in percent, the longest noise of a
// period and of one interruption (us), and counts by their cause.
var tracerLine = regexp.MustCompile(`(?m)^ *(\d+) #\d+ +(\d+) +\d+ +[\d.]+ +\d+ +\d+ +\d+ +(\d+) +(\d+) +(\d+) +(\d+)`)

// parseTracer returns how often each kind of cause came, per second. What rtla calls the
// hardware is the emulator, and left out.
func parseTracer(table string) (map[cause]float64, error) {
	found := map[cause]float64{}
	for _, fields := range tracerLine.FindAllStringSubmatch(table, -1) {
		var numbers [6]uint64
		for i, field := range fields[1:] {
			n, err := strconv.ParseUint(field, 10, 64)
			if err != nil {
				return nil, fmt.Errorf("rtla: %w", err)
			}
			numbers[i] = n
		}
		cpu, seconds := uint32(numbers[0]), float64(numbers[1])/1e6
		if seconds == 0 {
			return nil, fmt.Errorf("rtla: the tracer did not run on core %d:\n%s", cpu, table)
		}
		for i, kind := range []profiling.NoiseKind{profiling.NoiseNMI, profiling.NoiseIRQ, profiling.NoiseSoftIRQ, profiling.NoiseThread} {
			rate := float64(numbers[2+i]) / seconds
			found[cause{cpu: cpu, kind: kind}] = rate
			found[cause{cpu: cpu, name: all}] += rate
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("rtla printed no core:\n%s", table)
	}
	return found, nil
}
