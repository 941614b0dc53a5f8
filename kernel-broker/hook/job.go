// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"fmt"
	"strconv"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/hostlist"
)

// profileVariable carries the requested profile. Slurm adds SPANK_ to the plugin's variables, and users can set any
// variable with that prefix: the value is untrusted and the broker validates it.
const profileVariable = "SPANK_KERNEL_PROFILE"

// job is the job in the environment of a slurmctld hook. All names exist in 22.05 and in 26.05. Each component of a
// heterogeneous job has its own hooks, id and nodes.
type job struct {
	id      kb.JobID
	profile string
	nodes   []string // only of the prolog
	// reference names exactly this job for scontrol. The last task of an array has the array's id, which would name
	// every task.
	reference string
	// whole names the unit that can be requeued: Slurm requeues a heterogeneous job by its leader only.
	whole string
}

// wantsKernel reports whether the job requested another kernel than stock. It is the first check of a hook.
func wantsKernel(getenv func(string) string) bool {
	profile := getenv(profileVariable)
	if profile == "" || profile == kb.StockProfile {
		return false
	}
	ref, err := kb.ParseRef(profile)
	return err != nil || !ref.IsStock()
}

// profilingVariable is set if the job requests profiling. The broker reads the details from slurmctld.
const profilingVariable = "SPANK_KERNEL_PROFILING"

func wantsProfiling(getenv func(string) string) bool { return getenv(profilingVariable) != "" }

func jobOf(getenv func(string) string) (job, error) {
	j := job{profile: getenv(profileVariable)}
	var err error
	if j.id.Job, err = numberOf(getenv, "SLURM_JOB_ID"); err != nil {
		return job{}, err
	}
	if j.id.Job == 0 {
		return job{}, fmt.Errorf("SLURM_JOB_ID is 0: %w", kb.ErrInvalid)
	}
	if getenv("SLURM_JOB_RESTART_COUNT") != "" {
		if j.id.Restart, err = numberOf(getenv, "SLURM_JOB_RESTART_COUNT"); err != nil {
			return job{}, err
		}
	}
	j.reference = strconv.FormatUint(uint64(j.id.Job), 10)
	j.whole = j.reference
	if getenv("SLURM_ARRAY_JOB_ID") != "" {
		if j.reference, err = pairOf(getenv, "SLURM_ARRAY_JOB_ID", "_", "SLURM_ARRAY_TASK_ID"); err != nil {
			return job{}, err
		}
		j.whole = j.reference
	}
	if getenv("SLURM_HET_JOB_ID") != "" {
		if j.reference, err = pairOf(getenv, "SLURM_HET_JOB_ID", "+", "SLURM_HET_JOB_OFFSET"); err != nil {
			return job{}, err
		}
		leader, err := numberOf(getenv, "SLURM_HET_JOB_ID")
		if err != nil {
			return job{}, err
		}
		j.whole = strconv.FormatUint(uint64(leader), 10)
	}
	return j, nil
}

func (j *job) readNodes(getenv func(string) string) error {
	nodes, err := hostlist.Expand(getenv("SLURM_JOB_NODELIST"))
	if err != nil {
		return fmt.Errorf("SLURM_JOB_NODELIST: %w", err)
	}
	j.nodes = nodes
	return nil
}

func pairOf(getenv func(string) string, first, between, second string) (string, error) {
	a, err := numberOf(getenv, first)
	if err != nil {
		return "", err
	}
	b, err := numberOf(getenv, second)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d%s%d", a, between, b), nil
}

func numberOf(getenv func(string) string, name string) (uint32, error) {
	n, err := strconv.ParseUint(getenv(name), 10, 32)
	if err != nil {
		return 0, fmt.Errorf("%s is %q, not a number: %w", name, getenv(name), kb.ErrInvalid)
	}
	return uint32(n), nil
}
