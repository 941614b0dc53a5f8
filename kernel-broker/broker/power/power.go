// SPDX-License-Identifier: Apache-2.0

// Package power resets unresponsive nodes from outside by a site's own command, such as a wrapper around ipmitool.
package power

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// placeholder is replaced by the node's name.
const placeholder = "{node}"

// limit bounds one reset.
const limit = 30 * time.Second

// Command resets a node by running a program; no shell is involved.
type Command struct {
	// Hold is asked before each reset, and ends its context when this process may not reset anything any more; nil: nobody else resets.
	Hold func(context.Context) (context.Context, context.CancelFunc, error)

	argv []string
}

// New takes the program and its arguments, one of which must contain {node}.
func New(argv []string) (*Command, error) {
	if len(argv) < 2 || !slices.ContainsFunc(argv[1:], func(a string) bool { return strings.Contains(a, placeholder) }) {
		return nil, fmt.Errorf("reset command %q: needs a program and an argument with %s: %w", argv, placeholder, kb.ErrInvalid)
	}
	return &Command{argv: slices.Clone(argv)}, nil
}

// Check looks for the program. A node that needs a reset is a bad time to find out that there is none.
func (c *Command) Check() error {
	if _, err := exec.LookPath(c.argv[0]); err != nil {
		return fmt.Errorf("reset command: %w", err)
	}
	return nil
}

// Reset runs the command for one node.
func (c *Command) Reset(ctx context.Context, node string) error {
	if err := kb.ValidateNodeName(node); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if c.Hold != nil {
		held, release, err := c.Hold(ctx)
		if err != nil {
			return err
		}
		defer release()
		ctx = held
	}
	args := make([]string, 0, len(c.argv)-1)
	for _, a := range c.argv[1:] {
		args = append(args, strings.ReplaceAll(a, placeholder, node))
	}
	cmd := exec.CommandContext(ctx, c.argv[0], args...) //nolint:gosec // G204: the configured command, no shell; a node name is checked
	// A child that the command leaves behind keeps its output open.
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		return fmt.Errorf("node %q: reset command %q: %w: %s", node, c.argv[0], err, strings.TrimSpace(string(out)))
	}
	return nil
}
