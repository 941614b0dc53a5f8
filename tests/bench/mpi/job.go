// SPDX-License-Identifier: Apache-2.0

package mpi

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// script runs the program with one rank a node, and leaves in the user's home: what
// it printed, the nodes' releases, and what their kernels do against flaws. UCX is
// told its transport and device, lest it choose by kernel.
const script = `#!/bin/bash
#SBATCH --output=%x.log --exclusive --nodes=2 --ntasks-per-node=1 --time=20
set -e -o pipefail
export UCX_TLS=tcp,self UCX_NET_DEVICES=eth0
srun uname -r | sort -u >~/$SLURM_JOB_NAME.releases
(cd /sys/devices/system/cpu/vulnerabilities 2>/dev/null && grep . *) >~/$SLURM_JOB_NAME.mitigations || true
srun --mpi=pmi2 --kill-on-bad-exit=1 ` + program + ` "$@" >~/$SLURM_JOB_NAME.json
`

// program is where the nodes have it.
const program = "/usr/local/bin/mpi-pingpong"

// Row is one size of one job.
type Row struct {
	Bytes  int     `json:"bytes"`
	Median float64 `json:"median"`
	Q1     float64 `json:"q1"`
	Q3     float64 `json:"q3"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// Outcome of one job.
type Outcome struct {
	Kernel  string `json:"kernel"`
	Round   int    `json:"round"`
	Release string `json:"release"`
	// Mitigations are the lines of sysfs; empty where the kernel has none.
	Mitigations []string `json:"mitigations"`

	Nodes     []string `json:"nodes"`
	Library   string   `json:"library"`
	Samples   int      `json:"samples"`
	Messages  int      `json:"messages"`
	Latency   []Row    `json:"latency_seconds"`
	Bandwidth []Row    `json:"bandwidth_bytes_per_second"`
}

// outcome reads what a job left in the user's home.
func outcome(home, job string) (Outcome, error) {
	var o Outcome
	texts := map[string]string{}
	for _, kind := range []string{"json", "releases", "mitigations"} {
		text, err := os.ReadFile(filepath.Join(home, job+"."+kind))
		if err != nil {
			return Outcome{}, fmt.Errorf("job %s: %w", job, err)
		}
		texts[kind] = strings.TrimSpace(string(text))
	}
	if err := json.Unmarshal([]byte(texts["json"]), &o); err != nil {
		return Outcome{}, fmt.Errorf("job %s: what mpi-pingpong printed: %w", job, err)
	}
	o.Release = texts["releases"]
	if o.Mitigations = nil; texts["mitigations"] != "" {
		o.Mitigations = strings.Split(texts["mitigations"], "\n")
	}
	if err := o.check(); err != nil {
		return Outcome{}, fmt.Errorf("job %s: %w", job, err)
	}
	return o, nil
}

// check finds what would make the figures those of something else.
func (o Outcome) check() error {
	if len(o.Nodes) != 2 || o.Nodes[0] == o.Nodes[1] {
		return fmt.Errorf("ranks on %v and not on two nodes", o.Nodes)
	}
	if strings.ContainsAny(o.Release, "\n ") || o.Release == "" {
		return fmt.Errorf("nodes on %q and not on one kernel", o.Release)
	}
	if len(o.Latency) == 0 || len(o.Bandwidth) == 0 {
		return errors.New("no rows of latency or bandwidth")
	}
	for _, r := range slices.Concat(o.Latency, o.Bandwidth) {
		if r.Bytes < 0 || r.Median <= 0 {
			return fmt.Errorf("%d bytes: median %g", r.Bytes, r.Median)
		}
	}
	return nil
}
