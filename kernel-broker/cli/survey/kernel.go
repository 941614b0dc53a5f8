// SPDX-License-Identifier: Apache-2.0

package survey

import (
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/config"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/proof"
)

// noKexec is why the running kernel loads no other one; empty if it does.
func noKexec(c config.Config) string {
	if !exists(filepath.Join(c.Sys, "kernel/kexec_loaded")) {
		return "the running kernel has no kexec (/sys/kernel/kexec_loaded is missing)"
	}
	text, err := os.ReadFile(filepath.Join(c.Proc, "sys/kernel/kexec_load_disabled"))
	if err == nil && strings.TrimSpace(string(text)) != "0" {
		return "kexec is switched off (kernel.kexec_load_disabled is 1)"
	}
	return ""
}

// noPanic is why a job's kernel hangs when it panics. Only the command line counts: a sysctl is set too late, and another
// kernel has another default.
func noPanic(c config.Config) string {
	text, err := os.ReadFile(filepath.Join(c.Proc, "cmdline"))
	if err != nil {
		return ""
	}
	timeout := ""
	for _, argument := range proof.Split(string(text)) {
		key, value, _ := strings.Cut(argument, "=")
		switch key {
		case kb.BeginParameter:
			timeout = "" // what stands before is built into the running kernel
		case "panic":
			timeout = value
		}
	}
	switch {
	case timeout == "":
		return "the kernel command line has no panic="
	case strings.Trim(timeout, "0") == "":
		return "the kernel command line has panic=" + timeout
	case !kb.Parameters(c.Boot.KeepArguments).Has("panic"):
		return "boot.keep_arguments has no panic, so that a job's kernel does not get the node's panic=" + timeout
	}
	return ""
}

// noCgroup2 is why the folders in which Slurm creates the cgroups of jobs are not of version 2; empty if one is, or will be
// when slurmd creates it.
func noCgroup2(patterns []string) string {
	for _, pattern := range patterns {
		if isCgroup2(nearest(pattern)) {
			return ""
		}
	}
	return "no folder of profiling.cgroups (" + strings.Join(patterns, ", ") + ") is in a cgroup2 file system"
}

// nearest is the first match of a pattern, or of its longest beginning that has one.
func nearest(pattern string) string {
	for {
		if found, err := filepath.Glob(pattern); err == nil && len(found) > 0 || pattern == "/" {
			return found[0]
		}
		pattern = filepath.Dir(pattern)
	}
}

func isCgroup2(path string) bool {
	var fs unix.Statfs_t
	return unix.Statfs(path, &fs) == nil && fs.Type == unix.CGROUP2_SUPER_MAGIC
}
