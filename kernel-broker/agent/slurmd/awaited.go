// SPDX-License-Identifier: Apache-2.0

package slurmd

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

const askTimeout = 10 * time.Second

// Awaited asks slurmctld by scontrol whether it waits for a boot of a node without a job: a boot for a job that has
// left, or for the product's own return. Boots for a present job are that job's, and an administrator's reboot must
// really happen.
func Awaited(ctx context.Context, scontrol, node string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, scontrol, "--oneliner", "show", "node", node) //nolint:gosec // G204: the configured program, no shell; a node name is checked
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if err != nil {
		return false, fmt.Errorf("%s: %w", scontrol, err)
	}
	return awaited(string(out)), nil
}

func awaited(out string) bool {
	head, reason, _ := strings.Cut(out, " Reason=")
	for field := range strings.FieldsSeq(head) {
		if state, ok := strings.CutPrefix(field, "State="); ok {
			flags := strings.Split(state, "+")
			if slices.Contains(flags, "COMPLETING") {
				return false
			}
			left := flags[0] == "IDLE" && slices.Contains(flags, "POWERING_UP")
			back := flags[0] == "DOWN" && slices.Contains(flags, "REBOOT_ISSUED") && strings.HasPrefix(reason, kb.ReasonReturn)
			return left || back
		}
	}
	return false
}
