// SPDX-License-Identifier: Apache-2.0

package emulated

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
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
func (c *Cluster) product(ctx context.Context, system string) (string, error) {
	dir := filepath.Join(c.options.Dir, "product")
	plugin, err := plugin(ctx, c.options, system)
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

// once caches a value for each version: the first cluster of a process does what is slow or must not run concurrently.
type once struct {
	lock sync.Mutex
	made map[string]string
}

func (o *once) get(key string, build func() (string, error)) (string, error) {
	o.lock.Lock()
	defer o.lock.Unlock()
	if found, ok := o.made[key]; ok {
		return found, nil
	}
	found, err := build()
	if err != nil {
		return "", err
	}
	if o.made == nil {
		o.made = map[string]string{}
	}
	o.made[key] = found
	return found, nil
}

var roots, plugins once

// slurmRoot is the folder with a Debian that has the options' Slurm.
func slurmRoot(ctx context.Context, o Options) (string, error) {
	return roots.get(o.Slurm, func() (string, error) {
		cmd := exec.CommandContext(ctx, ".ci/slurm-root", o.Slurm)
		cmd.Dir = o.Repo
		var said strings.Builder
		cmd.Stderr = &said
		out, err := cmd.Output()
		if err != nil {
			return "", fmt.Errorf("root with Slurm %s: %w: %s", o.Slurm, err, strings.TrimSpace(said.String()))
		}
		return strings.TrimSpace(string(out)), nil
	})
}

// plugin compiles the gate against the headers of the options' Slurm.
func plugin(ctx context.Context, o Options, system string) (string, error) {
	return plugins.get(o.Slurm, func() (string, error) {
		if system == "/" {
			return filepath.Join(o.Product, "slurm-plugin/kernel_profile.so"), nil
		}
		out := filepath.Join(o.Product, "slurm-plugin-"+filepath.Base(system))
		if err := os.MkdirAll(out, 0o755); err != nil {
			return "", fmt.Errorf("plugin: %w", err)
		}
		lock, err := os.Create(out + "/lock")
		if err != nil {
			return "", fmt.Errorf("plugin: %w", err)
		}
		defer lock.Close()
		if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
			return "", fmt.Errorf("plugin: %w", err)
		}
		cmd := exec.CommandContext(ctx, "make", "-s", "-C", filepath.Join(o.Repo, "slurm-plugin"),
			"out="+out, "SLURM_CPPFLAGS=-I"+system+"/usr/include")
		if said, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("plugin for Slurm %s: %w: %s", o.Slurm, err, said)
		}
		return out + "/kernel_profile.so", nil
	})
}
