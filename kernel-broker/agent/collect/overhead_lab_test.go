// SPDX-License-Identifier: Apache-2.0

//go:build lab

package collect_test

import (
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/collect"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/collect/callgraph"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/collect/files"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/collect/noise"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/collect/syscalls"
)

// overhead compares the same job with and without collectors: CPU time is a
// number of instructions here.
func overhead(t *testing.T) {
	programs := map[string][]string{
		"calls":  {"known", "calls", "50000"},
		"mitgcm": {"mitgcm-io", "--dir", "DIR", "--io-scale", "10", "--compute-scale", "1"},
	}
	sets := []struct {
		name       string
		collectors []collect.Collector
		// Limits of added instructions: per null call, and in percent of the replay.
		perCall, replay float64
	}{
		{"noise", []collect.Collector{noise.Collector{}}, 30, 1},
		{"callgraph", []collect.Collector{callgraph.Collector{}}, 60, 2},
		{"io", []collect.Collector{files.Collector{}}, 30, 3},
		{"syscalls", []collect.Collector{syscalls.Collector{}}, 850, 4},
		{"io+syscalls", []collect.Collector{files.Collector{}, syscalls.Collector{}}, 850, 6},
	}
	alone := map[string]float64{}
	for name, command := range programs {
		alone[name] = cost(t, command, nil)
		t.Logf("%s alone: %.0f instructions", name, alone[name])
	}
	for _, set := range sets {
		t.Run(set.name, func(t *testing.T) {
			for name, command := range programs {
				with := cost(t, command, set.collectors)
				added := with - alone[name]
				share := 100 * added / alone[name]
				t.Logf("%s with %s: %.0f instructions more, %.2f %%", name, set.name, added, share)
				if name == "calls" && added/50000 > set.perCall {
					t.Errorf("%s adds %.0f instructions to a call", set.name, added/50000)
				}
				if name == "mitgcm" && share > set.replay {
					t.Errorf("%s adds %.2f %% to the replay", set.name, share)
				}
			}
		})
	}
}

// cost is the CPU time of a program in a job, in nanoseconds of a clock that
// counts instructions.
func cost(t *testing.T, command []string, collectors []collect.Collector) float64 {
	t.Helper()
	args := append([]string{}, command[1:]...)
	for i := range args {
		if args[i] == "DIR" {
			args[i] = t.TempDir()
		}
	}
	j := newJob(t, nil, collectors...)
	cmd := j.command(command[0], args...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v: %s", command, err, out)
	}
	if collectors == nil {
		j.run.Stop("")
	}
	j.result()
	return float64(cmd.ProcessState.SystemTime() + cmd.ProcessState.UserTime())
}
