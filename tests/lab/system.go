// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"os"
	"os/exec"

	"github.com/kernelbroker/kernelbroker/tests/support/slurmroot"
)

// system is the Debian root that the front-end and the nodes' disk have their programs from, and the plugin for its
// Slurm.
type system struct {
	slurmroot.Root
	// Plugin is the file, empty for the built product's own.
	Plugin string `json:"plugin,omitempty"`
}

func findSystem(ctx context.Context, o Options) (system, error) {
	root, err := slurmroot.Find(ctx, o.Repo, o.Slurm.Version)
	if err != nil || root.Own() || o.WithoutProduct {
		return system{Root: root}, err
	}
	plugin, err := root.Plugin(ctx, o.Repo, o.Product)
	return system{root, plugin}, err
}

// machines is where the front-end has the host's own root, if its /usr is another's: QEMU is the host's.
const machines = "/run/machines"

// onHost runs a program of the host's on the front-end.
func (s system) onHost(argv ...string) []string {
	if s.Own() {
		return argv
	}
	return append([]string{"chroot", machines}, argv...)
}

// missingPrograms checks the requirements first. A root of its own is complete.
func missingPrograms(o Options, s system) error {
	wanted := map[string]string{
		qemuProgram: "qemu-system-x86", "mke2fs": "e2fsprogs",
		"ip": "iproute2", "nsenter": "util-linux", "setpriv": "util-linux", busybox: "busybox-static",
	}
	if s.Own() {
		wanted["slurmctld"], wanted["munged"] = "slurmctld", "munge"
		if o.Slurm.Accounting {
			wanted["slurmdbd"], wanted["mariadbd"] = "slurmdbd", "mariadb-server-core"
		}
		if o.Slurm.REST {
			wanted["slurmrestd"] = "slurmrestd"
			if _, err := os.Stat(slurmPlugins + "/auth_jwt.so"); err != nil {
				return fmt.Errorf("slurmctld's plugin for tokens: %w (Debian package slurm-wlm-jwt-plugin)", err)
			}
		}
	}
	for program, pkg := range wanted {
		_, err := exec.LookPath(program)
		if err != nil {
			if _, sbin := os.Stat("/usr/sbin/" + program); sbin != nil {
				return fmt.Errorf("program %q: not here (Debian package %s)", program, pkg)
			}
		}
	}
	// A container may lack it, and without root it must be open to all users.
	tun, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("the nodes' network: %w", err)
	}
	return tun.Close()
}
