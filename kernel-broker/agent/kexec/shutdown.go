// SPDX-License-Identifier: Apache-2.0

package kexec

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// ErrNotPrepared: a step of the site's own before a boot failed.
var ErrNotPrepared = errors.New("the node is not ready to leave its kernel")

// fullShutdown bounds the end of all services, from the command to the boot.
const fullShutdown = 10 * time.Minute

// Shutdown is how the machine leaves the kernel that runs.
type Shutdown struct {
	// Before is the site's command before each boot, Limit how long it may take.
	Before []string
	Limit  time.Duration
	// Command boots the loaded kernel in place of the program, after a shutdown of all services.
	Command []string
}

// Prepare runs the site's command. It may run more than once before a boot.
func (s Shutdown) Prepare(ctx context.Context) error {
	if len(s.Before) == 0 {
		return nil
	}
	if err := RunCommand(ctx, s.Before, s.Limit); err != nil {
		return fmt.Errorf("%w: %w", ErrNotPrepared, err)
	}
	return nil
}

// execute returns when the machine still runs after all that, or the agent is stopped with the other services.
func (s Shutdown) execute(ctx context.Context) error {
	if err := RunCommand(ctx, s.Command, time.Minute); err != nil {
		return fmt.Errorf("%w: %w", errReturned, err)
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(fullShutdown):
		return fmt.Errorf("%w %v after %q", errReturned, fullShutdown, strings.Join(s.Command, " "))
	}
}

// RunCommand runs a configured command, without a shell.
func RunCommand(ctx context.Context, command []string, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...) //nolint:gosec // G204: the configured command, no shell
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if err == nil {
		return nil
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = fmt.Errorf("not done within %v", limit)
	}
	text := strings.Join(strings.Fields(string(out[:min(len(out), maxOutput)])), " ")
	return fmt.Errorf("%s: %w: %s", strings.Join(command, " "), err, text)
}
