// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/decide"
)

const (
	// rebootTime is what a machine may take from the command to its end.
	rebootTime = 5 * time.Minute
	// rebootLimit bounds the command: it begins the reboot.
	rebootLimit = time.Minute
)

// reboot has the machine reboot, unless the broker wants something else by now.
func (a *Agent) reboot(ctx context.Context, action decide.Action) error {
	status := a.parts.Link.Status()
	if !status.Fresh || !status.Desired.Reboot || status.Desired.Generation != action.Generation {
		return errSuperseded
	}
	return a.parts.Reboot(ctx)
}

// RebootBy makes the function that reboots a machine by a command.
func RebootBy(command []string) func(context.Context) error {
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, rebootLimit)
		defer cancel()
		cmd := exec.CommandContext(ctx, command[0], command[1:]...) //nolint:gosec // G204: the configured command, no shell
		cmd.WaitDelay = time.Second
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", strings.Join(command, " "), err, strings.TrimSpace(string(out)))
		}
		return nil
	}
}
