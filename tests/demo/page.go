// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// page keeps the cluster, and shows it in a browser on this host, until the demo is interrupted.
func (d *demo) page(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("page: %w", err)
	}
	bin := filepath.Dir(self)
	d.title("The cluster is kept until Ctrl-C")
	fmt.Fprintf(d.out, "  In another terminal, a shell of the user:  %s shell --dir %s\n  The page, with the rights of who started the demo:\n\n", filepath.Join(bin, "kblab"), d.o.Dir)
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "kernelctl"), "web", "--broker", "unix://"+d.lab.Inside("/run/kernel-broker/broker.sock"))
	cmd.Stdout, cmd.Stderr = d.out, d.out
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	if err := cmd.Run(); err != nil && ctx.Err() == nil {
		return fmt.Errorf("page: %w", err)
	}
	return nil
}
