// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// prepare writes everything that the front-end and the nodes read.
func (l *Lab) prepare() error {
	steps := []func() error{l.writeAccounts, l.writeSlurm, l.writeSecrets, l.writeHomes}
	if !l.state.Options.WithoutProduct {
		steps = append(steps, l.WriteProductConfig, l.installProduct, l.writeCatalog)
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func write(path, text string, mode os.FileMode) error {
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		return fmt.Errorf("lab file: %w", err)
	}
	// The caller's umask must not decide who can read it.
	if err := os.Chmod(path, mode); err != nil {
		return fmt.Errorf("lab file: %w", err)
	}
	return nil
}

func (l *Lab) writeAccounts() error {
	files := map[string]string{
		"passwd":        passwdFile(l.state.Accounts),
		"group":         groupFile(l.state.Accounts),
		"hosts":         hostsFile(l.state.Options.Nodes),
		"nsswitch.conf": "passwd: files\ngroup: files\nshadow: files\nhosts: files\n",
		"hostname":      frontHost + "\n",
	}
	for name, text := range files {
		for _, dir := range []string{"root/etc", "share/conf/etc"} {
			if err := write(l.layout.path(dir, name), text, 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l *Lab) writeSlurm() error {
	o := l.state.Options
	files := map[string]string{
		"slurm.conf":     slurmConf(o, l.state.Mode),
		"cgroup.conf":    cgroupConf(o),
		"plugstack.conf": plugstackConf(o),
	}
	for name, text := range files {
		if err := write(l.layout.path("share/conf/slurm", name), text, 0o644); err != nil {
			return err
		}
	}
	if o.Slurm.Accounting {
		return write(l.layout.path("share/conf/slurm", "slurmdbd.conf"), SlurmdbdConf(frontHost, service(l.state.Mode, "slurm")), 0o600)
	}
	return nil
}

// writeSecrets makes the cluster's munge key and the token of the nodes' exec
// channel, new for each lab.
func (l *Lab) writeSecrets() error {
	key := make([]byte, 128)
	rand.Read(key)
	if err := write(l.layout.path("share/conf/munge/munge.key"), string(key), 0o400); err != nil {
		return err
	}
	if err := l.writeTokenKey(); err != nil {
		return err
	}
	token := make([]byte, 16)
	rand.Read(token)
	return write(l.layout.token(), hex.EncodeToString(token)+"\n", 0o400)
}

const bashrc = `PS1='[\u@\h \w]$ '
`

func (l *Lab) writeHomes() error {
	for _, a := range l.state.Accounts {
		if !a.person() {
			continue
		}
		home := l.layout.path("share", a.Home)
		if err := os.MkdirAll(home, 0o755); err != nil {
			return fmt.Errorf("home of %q: %w", a.Name, err)
		}
		if err := write(filepath.Join(home, ".bashrc"), bashrc, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// WriteProductConfig writes broker.yaml, client.yaml and each agent.yaml from
// the lab's options; "up" calls it.
func (l *Lab) WriteProductConfig() error {
	o := l.state.Options
	files := map[string]map[string]any{
		"share/conf/kernel-broker/broker.yaml": brokerConfig(o, l.state.Mode),
		"share/conf/kernel-broker/client.yaml": clientConfig(o),
	}
	if o.TwoBrokers {
		files["share/conf/kernel-broker/standby.yaml"] = standbyConfig(o, l.state.Mode)
	}
	for i := 1; i <= o.Nodes; i++ {
		at := filepath.Join("nodes", nodeName(i), "share/etc/kernel-broker")
		files[filepath.Join(at, "agent.yaml")] = agentConfig(o, i)
	}
	for name, config := range files {
		text, err := ConfigFile(config)
		if err != nil {
			return fmt.Errorf("file %q: %w", name, err)
		}
		if err := write(l.layout.path(name), string(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// installProduct copies the front-end's part of the product into the lab, so
// that a rebuild does not change a running lab.
func (l *Lab) installProduct() error {
	found, err := findProduct(l.state.Options, l.state.System.Plugin, frontFiles)
	if err != nil {
		return err
	}
	for target, source := range found {
		to := l.layout.path("product", target)
		switch {
		case builders[filepath.Base(target)]:
			to = l.layout.path(builderPrefix, "bin", filepath.Base(target))
			if err := l.link(target, filepath.Join(insideDir, builderPrefix, "bin", filepath.Base(target))); err != nil {
				return err
			}
		case strings.HasPrefix(target, "/etc/slurm/"):
			to = l.layout.path("share/conf/slurm", filepath.Base(target))
		case strings.HasPrefix(target, "/usr/local/bin/"):
			to = l.layout.path("root", target)
		}
		if err := copyFile(source, to, 0o755); err != nil {
			return err
		}
	}
	return l.installFactory()
}

// link has a path of the front-end lead to another one.
func (l *Lab) link(target, to string) error {
	path := l.layout.path("root", target)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("link: %w", err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("link: %w", err)
	}
	return os.Symlink(to, path)
}

func copyFile(from, to string, mode os.FileMode) error {
	in, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("copy: %w", err)
	}
	defer in.Close()
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return fmt.Errorf("copy of %q: %w", from, err)
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return fmt.Errorf("copy of %q: %w", from, err)
	}
	if _, err := io.Copy(out, in); err != nil {
		out.Close()
		return fmt.Errorf("copy of %q: %w", from, err)
	}
	if err := out.Close(); err != nil {
		return fmt.Errorf("copy of %q: %w", from, err)
	}
	return nil
}
