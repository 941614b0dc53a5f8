// SPDX-License-Identifier: Apache-2.0

package emulated

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/kernelbroker/kernelbroker/tests/support/slurmroot"
)

// productFiles are the programs of the product folder, and where they are below
// /opt/kernel-broker. Hooks are one program under several names.
var productFiles = [][2]string{
	{"bin/kernel-broker", "bin/kernel-broker"},
	{"bin/kernel-broker-agent", "bin/kernel-broker-agent"},
	{"bin/kernelctl", "bin/kernelctl"},
	{"bin/kernel-broker-hook", "libexec/prolog-slurmctld"},
	{"bin/kernel-broker-hook", "libexec/epilog-slurmctld"},
	{"bin/kernel-broker-hook", "libexec/reboot"},
	{"bin/kernel-broker-node-hook", "libexec/epilog"},
}

// product installs the built programs, and the plugin for the cluster's Slurm.
func (c *Cluster) product(ctx context.Context, system slurmroot.Root) (string, error) {
	dir := filepath.Join(c.options.Dir, "product")
	plugin, err := system.Plugin(ctx, c.options.Repo, c.options.Product)
	if err != nil {
		return "", err
	}
	files := append([][2]string{}, productFiles...)
	for i := range files {
		files[i][0] = filepath.Join(c.options.Product, files[i][0])
	}
	files = append(files, [2]string{plugin, "kernel_profile.so"})
	for _, f := range files {
		if err := link(f[0], filepath.Join(dir, f[1])); err != nil {
			return "", fmt.Errorf("product: %w (make build)", err)
		}
	}
	return dir, nil
}

// link creates a hard link that may be replaced afterwards.
func link(from, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	if os.Link(from, to) == nil {
		return nil
	}
	// Another file system.
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		out.Close()
		return err
	}
	return out.Close()
}
