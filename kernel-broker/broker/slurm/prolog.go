// SPDX-License-Identifier: Apache-2.0

package slurm

import (
	"context"
	"fmt"
	"strings"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// UndoPrologDrain removes the drain that slurmctld set for a failed prolog, if it is still the one given at by. If the
// site has its own prolog that may have failed, it returns ErrFailedPrecondition.
func (c *Client) UndoPrologDrain(ctx context.Context, node, by string) error {
	config, _, err := c.run(ctx, c.scontrol, "show", "config")
	if err != nil {
		return err
	}
	if err := onlyTheGate(config, by); err != nil {
		return fmt.Errorf("node %q stays drained: %w", node, err)
	}
	nodes, err := c.Nodes(ctx, []string{node})
	if err != nil {
		return err
	}
	n, ok := nodes[node]
	if !ok {
		return fmt.Errorf("scontrol show node %s printed no such node: %w", node, kb.ErrUnavailable)
	}
	if !n.Drained() || n.PlainReason() != kb.ReasonProlog || n.By != by {
		return nil // already resumed
	}
	return c.change(ctx, "update", "nodename="+node, "state=undrain")
}

// onlyTheGate rejects configurations where something other than a SPANK plugin runs before jobs on nodes, and reasons
// that slurmctld did not set.
func onlyTheGate(config, by string) error {
	owner, err := configured(config, "SlurmUser")
	if err != nil {
		return err
	}
	user, _, _ := strings.Cut(owner, "(")
	if who, _, _ := strings.Cut(by, "@"); who != user {
		return fmt.Errorf("%q gave the reason, not slurmctld's user %q: %w", who, user, kb.ErrFailedPrecondition)
	}
	for line := range strings.Lines(strings.ToLower(config)) {
		key, value, _ := strings.Cut(line, "=")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		if value == "" || value == "(null)" {
			continue
		}
		// 24.05 and later list several as prolog[0], prolog[1].
		if key == "prolog" || strings.HasPrefix(key, "prolog[") {
			return fmt.Errorf("the site's own Prolog %s may have failed too: %w", value, kb.ErrFailedPrecondition)
		}
		if key == "prepplugins" && value != "prep/script" && value != "script" {
			return fmt.Errorf("the site's PrEp plugin may have failed too (%s): %w", value, kb.ErrFailedPrecondition)
		}
	}
	return nil
}
