// SPDX-License-Identifier: Apache-2.0

package runs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/collect/cgroup"
)

// group is where the job has or will have its processes.
type group struct {
	path string
	made bool
}

// findGroup returns the first directory that holds jobs or already has this job's cgroup.
func findGroup(patterns []string, desired kb.DesiredRun) (group, error) {
	name := "job_" + strconv.FormatUint(uint64(desired.Job.Job), 10)
	if desired.Cgroup != "" {
		if err := kb.ValidateCgroup(desired.Cgroup); err != nil {
			return group{}, err
		}
		name = desired.Cgroup
	}
	var parents []string
	for _, pattern := range patterns {
		matches, err := filepath.Glob(pattern)
		if err != nil {
			return group{}, fmt.Errorf("cgroups of jobs, pattern %q: %w", pattern, err)
		}
		parents = append(parents, matches...)
	}
	for _, parent := range parents {
		path := filepath.Join(parent, name)
		if _, err := os.Stat(path); err == nil {
			return group{path: path}, nil
		}
	}
	if len(parents) == 0 {
		return group{}, fmt.Errorf("no cgroups of version 2 for Slurm jobs (tried %v): set CgroupPlugin=cgroup/v2 "+
			"and ProctrackType=proctrack/cgroup", patterns)
	}
	return group{path: filepath.Join(parents[0], name)}, nil
}

// prepare creates the cgroup before Slurm does.
func (g *group) prepare() error {
	err := os.Mkdir(g.path, 0o755)
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cgroup of the job: %w", err)
	}
	g.made = true
	return nil
}

func (g *group) populated() bool {
	alive, err := (&cgroup.Group{Path: g.path}).Populated()
	return err == nil && alive
}
