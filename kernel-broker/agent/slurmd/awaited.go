// SPDX-License-Identifier: Apache-2.0

package slurmd

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	nodes "github.com/kernelbroker/kernelbroker/kernel-broker/internal/scontrol"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/slurmexec"
)

const askTimeout = 10 * time.Second

// Awaited asks slurmctld by scontrol, and by squeue beside it, whether it waits for a boot of a node that no job with a
// profile has: a boot for a job that has left, or for the product's own return. Slurm gives such a node to plain jobs,
// which then wait with it. Boots for a present job are that job's, and an administrator's reboot must really happen.
func Awaited(ctx context.Context, scontrol, node string) (bool, error) {
	runner := slurmexec.Runner{Limit: askTimeout}
	out, _, err := runner.Run(ctx, scontrol, "--oneliner", "show", "node", node)
	if err != nil {
		return false, err
	}
	waits, withJobs := awaited(out)
	if !waits || !withJobs {
		return waits, nil
	}
	reboots, _, err := runner.Run(ctx, filepath.Join(filepath.Dir(scontrol), "squeue"), "--noheader", "--nodelist="+node, "--Format=reboot")
	jobs := strings.Fields(reboots)
	return err == nil && len(jobs) > 0 && !slices.Contains(jobs, "1"), err
}

// awaited reports whether slurmctld waits for the node, and whether jobs have it that may be what it waits for.
func awaited(out string) (waits, withJobs bool) {
	node, ok := nodes.ParseNode(out)
	has := func(flag string) bool { return slices.Contains(node.Flags, flag) }
	if !ok || has("COMPLETING") {
		return false, false
	}
	switch node.State {
	case "IDLE":
		return has("POWERING_UP"), false
	case "ALLOCATED", "MIXED":
		return has("POWERING_UP"), true
	}
	return node.State == "DOWN" && node.RebootIssued() && strings.HasPrefix(node.Reason, kb.ReasonReturn), false
}
