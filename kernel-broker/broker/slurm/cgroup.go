// SPDX-License-Identifier: Apache-2.0

package slurm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/scontrol"
)

// Cgroup is the name of the cgroup in which slurmd keeps a job's processes, or empty for job_ID. From Slurm 26.05 on it
// is the job's SLUID, which another start of the job has not, unless cgroup.conf has CgroupJobIdPaths=yes.
func (c *Client) Cgroup(ctx context.Context, job uint32) (string, error) {
	by, err := c.cgroups.Get(ctx, struct{}{}, func(ctx context.Context) (bool, time.Duration, error) {
		byID, err := c.setting(ctx, "CgroupJobIdPaths")
		if errors.Is(err, errNoSetting) {
			return false, keepSettings, nil // an older Slurm, or one without cgroups
		}
		if err != nil {
			return false, 0, err
		}
		return byID == "no", keepSettings, nil
	})
	if err != nil || !by {
		return "", err
	}
	out, err := c.text(ctx, "Sluid", job)
	if err != nil {
		return "", err
	}
	return parseSLUID(out, job)
}

// parseSLUID reads a job's records. Tasks of an array that wait have the id of its last task.
func parseSLUID(out string, job uint32) (string, error) {
	found, err := scontrol.Texts(out, job, scontrol.TextWidth)
	if err != nil {
		return "", err
	}
	if found = slices.Compact(found); len(found) > 1 {
		return "", fmt.Errorf("job %d: squeue printed %d SLUIDs: %w", job, len(found), kb.ErrUnavailable)
	}
	if err := kb.ValidateCgroup(found[0]); err != nil {
		return "", fmt.Errorf("job %d: squeue: %w: %w", job, err, kb.ErrUnavailable)
	}
	return found[0], nil
}
