// SPDX-License-Identifier: Apache-2.0

package emulated

import (
	"crypto/rand"
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/kernelbroker/kernelbroker/tests/lab"
	"github.com/kernelbroker/kernelbroker/tests/support/slurmroot"
)

//go:embed files
var scripts embed.FS

// account is one line of the cluster's passwd; the group has the same name and id.
type account struct {
	name, home, shell string
	id                int
}

var accounts = []account{
	{"root", "/root", "/bin/bash", 0},
	{"munge", "/nonexistent", "/usr/sbin/nologin", 110},
	{"mysql", "/nonexistent", "/usr/sbin/nologin", 111},
	{"slurm", "/nonexistent", "/usr/sbin/nologin", 64030},
	{"alice", "/home/alice", "/bin/bash", 20001},
	{"bob", "/home/bob", "/bin/bash", 20002},
	{"nobody", "/nonexistent", "/usr/sbin/nologin", 65534},
}

// folders of the cluster's root. From the host it has only /usr and devices.
var folders = []string{
	"usr", "dev", "sys", "proc", "tmp", "host", "mnt", "root", "machine", "emulated", "nodes", "catalog",
	"etc/slurm", "etc/munge", "etc/kernel-broker", "etc/alternatives", "opt/kernel-broker",
	"home/alice", "home/bob",
	"run/munge", "run/mysqld", "run/slurm", "run/kernel-broker", "run/lock",
	"var/lib/munge", "var/lib/mysql", "var/log/mysql", "var/lib/slurm/slurmctld", "var/lib/kernel-broker/hook", "var/cache/kernel-broker",
	"var/log/slurm", "var/log/munge", "var/log/kernel-broker", "var/spool/slurmd", "var/tmp",
}

// path is a file of the cluster's root as the host sees it.
func (c *Cluster) path(inside ...string) string {
	return filepath.Join(append([]string{c.options.Dir, "root"}, inside...)...)
}

// layOut writes the cluster's root.
func (c *Cluster) layOut(system string) error {
	for _, folder := range folders {
		if err := os.MkdirAll(c.path(folder), 0o755); err != nil {
			return fmt.Errorf("folder: %w", err)
		}
	}
	for _, top := range []string{"bin", "sbin", "lib", "lib64"} {
		if err := os.Symlink("usr/"+top, c.path(top)); err != nil {
			return fmt.Errorf("folder: %w", err)
		}
	}
	// Users and tests write there; tests have no user in the cluster.
	for _, open := range []string{"home/alice", "home/bob", "var/log/slurm"} {
		if err := os.Chmod(c.path(open), 0o777); err != nil {
			return fmt.Errorf("folder: %w", err)
		}
	}
	if err := c.copyScripts(); err != nil {
		return err
	}
	for _, name := range c.options.nodeNames() {
		if err := c.nodes[name].layOut(); err != nil {
			return err
		}
	}
	if err := c.writeCatalog(); err != nil {
		return err
	}
	return c.configure(system)
}

func (c *Cluster) copyScripts() error {
	entries, err := scripts.ReadDir("files")
	if err != nil {
		return fmt.Errorf("scripts: %w", err)
	}
	for _, e := range entries {
		text, err := scripts.ReadFile("files/" + e.Name())
		if err != nil {
			return fmt.Errorf("scripts: %w", err)
		}
		if err := write(c.path("emulated", e.Name()), string(text), 0o755); err != nil {
			return err
		}
	}
	for name, text := range map[string]string{"record": recordScript, "job": jobScript, "real-uname": ""} {
		if err := write(c.path("emulated", name), text, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// configure writes the files in /etc.
func (c *Cluster) configure(system string) error {
	o := c.options
	key := make([]byte, 128)
	if _, err := rand.Read(key); err != nil {
		return fmt.Errorf("munge key: %w", err)
	}
	hosts := fmt.Sprintf("127.0.0.1 localhost\n%s front\n", frontAddress)
	for i, name := range o.nodeNames() {
		hosts += fmt.Sprintf("%s %s\n", nodeAddress(i+1), name)
	}
	files := map[string]string{
		"etc/passwd": passwd(), "etc/group": group(), "etc/hosts": hosts,
		"etc/nsswitch.conf":        "passwd: files\ngroup: files\nhosts: files\n",
		"etc/slurm/slurm.conf":     slurmConf(o),
		"etc/slurm/cgroup.conf":    slurmroot.CgroupsUnused(o.Slurm),
		"etc/slurm/plugstack.conf": plugstackConf,
		"etc/munge/munge.key":      string(key),
	}
	if o.GresConf != nil {
		if err := os.Symlink("/machine/gres.conf", c.path("etc/slurm/gres.conf")); err != nil {
			return fmt.Errorf("configuration: %w", err)
		}
	}
	if o.Accounting {
		files["etc/slurm/slurmdbd.conf"] = lab.SlurmdbdConf(frontHost, "slurm")
	}
	for name, config := range map[string]map[string]any{
		"broker": brokerConfig(o), "standby": standbyConfig(o), "client": clientConfig(o), "agent": agentConfig(o),
	} {
		text, err := lab.ConfigFile(config)
		if err != nil {
			return err
		}
		files["etc/kernel-broker/"+name+".yaml"] = string(text)
	}
	for from, to := range map[string]string{
		filepath.Join(o.Repo, "slurm-plugin/job_submit.lua"): "etc/slurm/job_submit.lua",
		filepath.Join(system, "etc/ld.so.cache"):             "etc/ld.so.cache",
	} {
		text, err := os.ReadFile(from)
		if os.IsNotExist(err) && filepath.Base(from) == "ld.so.cache" {
			continue // made by a package's script, and only for speed
		}
		if err != nil {
			return fmt.Errorf("configuration: %w", err)
		}
		files[to] = string(text)
	}
	for name, text := range files {
		mode := os.FileMode(0o644)
		if strings.HasSuffix(name, ".key") || strings.HasSuffix(name, "slurmdbd.conf") {
			mode = 0o600
		}
		if err := write(c.path(name), text, mode); err != nil {
			return err
		}
	}
	return nil
}

func passwd() string {
	var b strings.Builder
	for _, a := range accounts {
		fmt.Fprintf(&b, "%s:x:%d:%d:%s:%s:%s\n", a.name, a.id, a.id, a.name, a.home, a.shell)
	}
	return b.String()
}

func group() string {
	var b strings.Builder
	for _, a := range accounts {
		fmt.Fprintf(&b, "%s:x:%d:\n", a.name, a.id)
	}
	return b.String()
}

// write replaces a file.
func write(path, text string, mode os.FileMode) error {
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("file: %w", err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		return fmt.Errorf("file: %w", err)
	}
	return os.Chmod(path, mode)
}
