// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// layout names the files in a lab's folder. The folder appears in the
// front-end as /run/lab.
type layout struct{ dir string }

const (
	insideDir        = "/run/lab"
	slurmctldPidFile = "/run/slurm/slurmctld.pid"
	nodeInitrd       = "/boot/initrd.img"
	nodeKernel       = "/boot/vmlinuz"
)

func (l layout) path(parts ...string) string {
	return filepath.Join(append([]string{l.dir}, parts...)...)
}

func (l layout) state() string     { return l.path("state.json") }
func (l layout) ready() string     { return l.path("run", "holder.ready") }
func (l layout) holderPid() string { return l.path("run", "holder.pid") }
func (l layout) holderLog() string { return l.path("logs", "holder.log") }
func (l layout) mark() string      { return l.path(".kblab") }

func (l layout) console(node string) string { return l.path("consoles", node+".log") }
func (l layout) qmp(node string) string     { return l.path("nodes", node, "qmp.sock") }
func (l layout) pidFile(node string) string { return l.path("nodes", node, "qemu.pid") }
func (l layout) token() string              { return l.path("share", "token") }

// folders are created at "up". The comment gives their mount point.
var folders = []string{
	"run",                    // pid file and ready mark of the holder
	"boot",                   // kernel, initrd and disk image of the nodes
	"logs",                   // /var/log on the front-end
	"consoles",               // serial consoles of the nodes
	"logs/slurm",             //
	"logs/munge",             //
	"logs/mysql",             //
	"logs/slurmrestd",        //
	"logs/kernel-broker",     //
	"root/etc/slurm",         // mount points that the host may lack
	"root/etc/munge",         // over the host's /etc, /usr/lib, ...
	"root/etc/kernel-broker", //
	"root" + pluginDir,       //
	"root" + libexec,         //
	"root/usr/local/bin",     //
	"product" + pluginDir,    // /usr/lib/kernel-broker
	"product" + libexec,      // /usr/libexec/kernel-broker
	"var/lib/slurm/slurmctld",
	"var/lib/kernel-broker",
	"var/lib/munge",
	"var/lib/mysql",
	"var/spool",
	"var/tmp",
	"var/log",          // mount point of logs
	"var/cache",        //
	"catalog/profiles", // registered with the broker by "up"
	"catalog/kernels",
	"share/home",
	"share/conf/slurm",         // /etc/slurm everywhere
	"share/conf/munge",         // /etc/munge on the front-end
	"share/conf/kernel-broker", // /etc/kernel-broker on the front-end
	"share/conf/etc",           // passwd, group, hosts, nsswitch.conf of the nodes
}

// nodeFolders are made for each node below nodes/NAME, which the node mounts.
var nodeFolders = []string{
	"share/cache", // /var/cache/kernel-broker
	"share/state", // /var/lib/kernel-broker
	"share/log/slurm",
	"share/log/munge",
	"share/log/kernel-broker",
	"share/etc/kernel-broker",
}

func (l layout) make(nodes int) error {
	if err := l.claim(); err != nil {
		return err
	}
	for _, f := range folders {
		if err := os.MkdirAll(l.path(f), 0o755); err != nil {
			return fmt.Errorf("lab folder: %w", err)
		}
	}
	for i := 1; i <= nodes; i++ {
		for _, f := range nodeFolders {
			if err := os.MkdirAll(l.path("nodes", nodeName(i), f), 0o755); err != nil {
				return fmt.Errorf("lab folder: %w", err)
			}
		}
	}
	// Independent of the caller's umask: the lab's users pass through these.
	return filepath.WalkDir(l.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		return os.Chmod(path, 0o755)
	})
}

// claim makes the folder the lab's. One that has other files in it is refused,
// since "down" removes it.
func (l layout) claim() error {
	list, err := os.ReadDir(l.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("lab folder: %w", err)
	}
	if _, err := os.Stat(l.mark()); err != nil && len(list) > 0 {
		return fmt.Errorf("lab folder %q: has other files in it", l.dir)
	}
	if err := os.MkdirAll(l.dir, 0o755); err != nil {
		return fmt.Errorf("lab folder: %w", err)
	}
	if err := os.WriteFile(l.mark(), []byte("a folder of kblab\n"), 0o644); err != nil {
		return fmt.Errorf("lab folder: %w", err)
	}
	return nil
}
