// SPDX-License-Identifier: Apache-2.0

// Package slurmroot finds Debian roots with a version of Slurm, for clusters of real Slurm daemons: the emulated one and
// the lab. What a harness does differently from one version of Slurm to another is in versions.go.
package slurmroot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
)

// Variable is the environment variable that names the version, and Default the version without it.
const (
	Variable = "KB_SLURM"
	Default  = "22.05"
)

// Versions are those that .ci/slurm-root knows: Debian's bookworm, trixie and sid.
var Versions = []string{"22.05", "24.11", "26.05"}

// ErrUnavailable means that Debian does not have the version today, as sid may not.
var ErrUnavailable = errors.New("this version of Slurm cannot be had today")

// Wanted is the version that the environment names.
func Wanted() string {
	if v := os.Getenv(Variable); v != "" {
		return v
	}
	return Default
}

// Root is a Debian root with a version of Slurm.
type Root struct {
	Version string `json:"version"`
	// Dir is "/" where the machine's own Slurm has the version.
	Dir string `json:"dir"`
}

// Own reports whether it is the machine's own root.
func (r Root) Own() bool { return r.Dir == "/" }

// Path is a file of the root as the host sees it.
func (r Root) Path(inside string) string { return filepath.Join(r.Dir, inside) }

// once caches a value for each key: the first cluster of a process does what is slow or must not run concurrently.
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

// unavailable is the exit status of .ci/slurm-root for ErrUnavailable.
const unavailable = 3

// Find finds the root, or makes it of Debian's packages. repo is the repository's top.
func Find(ctx context.Context, repo, version string) (Root, error) {
	dir, err := roots.get(version, func() (string, error) {
		cmd := exec.CommandContext(ctx, filepath.Join(repo, ".ci/slurm-root"), version)
		var said strings.Builder
		cmd.Stderr = &said
		out, err := cmd.Output()
		var exit *exec.ExitError
		if errors.As(err, &exit) && exit.ExitCode() == unavailable {
			err = ErrUnavailable
		}
		if err != nil {
			return "", fmt.Errorf("root with Slurm %s: %w: %s", version, err, strings.TrimSpace(said.String()))
		}
		return strings.TrimSpace(string(out)), nil
	})
	return Root{Version: version, Dir: dir}, err
}

// Plugin is the SPANK plugin for the root's Slurm: that of the built product, or one compiled against the root's headers
// into a folder of its own.
func (r Root) Plugin(ctx context.Context, repo, product string) (string, error) {
	if r.Own() {
		return filepath.Join(product, "slurm-plugin/kernel_profile.so"), nil
	}
	return plugins.get(product+" "+r.Dir, func() (string, error) {
		out := filepath.Join(product, "slurm-plugin-"+filepath.Base(r.Dir))
		if err := os.MkdirAll(out, 0o755); err != nil {
			return "", fmt.Errorf("plugin: %w", err)
		}
		// Two processes at once would compile into each other.
		lock, err := os.Create(out + "/lock")
		if err != nil {
			return "", fmt.Errorf("plugin: %w", err)
		}
		defer lock.Close()
		if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
			return "", fmt.Errorf("plugin: %w", err)
		}
		cmd := exec.CommandContext(ctx, "make", "-s", "-C", filepath.Join(repo, "slurm-plugin"),
			"out="+out, "SLURM_CPPFLAGS=-I"+r.Path("usr/include"))
		if said, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("plugin for Slurm %s: %w: %s", r.Version, err, said)
		}
		return out + "/kernel_profile.so", nil
	})
}
