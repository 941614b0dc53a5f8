// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/decide"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/kexec"
)

const (
	// rebootTime is what a machine may take from the command to its end.
	rebootTime = 5 * time.Minute
	// rebootLimit bounds the command: it begins the reboot.
	rebootLimit = time.Minute
)

// reboot has the machine reboot, unless the broker wants something else by now.
func (a *Agent) reboot(ctx context.Context, action decide.Action) error {
	a.parts.Settle(ctx)
	status := a.parts.Link.Status()
	if !status.Fresh || !status.Desired.Reboot || status.Desired.Generation != action.Generation {
		return errSuperseded
	}
	return a.parts.Reboot(ctx)
}

// RebootBy makes the function that reboots a machine by a command.
func RebootBy(command []string) func(context.Context) error {
	return func(ctx context.Context) error {
		return kexec.RunCommand(ctx, command, rebootLimit)
	}
}
