// SPDX-License-Identifier: Apache-2.0

package slurmd

import (
	"context"
	"slices"
	"strings"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	nodes "github.com/kernelbroker/kernelbroker/kernel-broker/internal/scontrol"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/slurmexec"
)

const askTimeout = 10 * time.Second

// Awaited asks slurmctld by scontrol whether it waits for a boot of a node without a job: a boot for a job that has
// left, or for the product's own return. Boots for a present job are that job's, and an administrator's reboot must
// really happen.
func Awaited(ctx context.Context, scontrol, node string) (bool, error) {
	out, _, err := slurmexec.Runner{Limit: askTimeout}.Run(ctx, scontrol, "--oneliner", "show", "node", node)
	return err == nil && awaited(out), err
}

func awaited(out string) bool {
	node, ok := nodes.ParseNode(out)
	has := func(flag string) bool { return slices.Contains(node.Flags, flag) }
	if !ok || has("COMPLETING") {
		return false
	}
	left := node.State == "IDLE" && has("POWERING_UP")
	back := node.State == "DOWN" && node.RebootIssued() && strings.HasPrefix(node.Reason, kb.ReasonReturn)
	return left || back
}
