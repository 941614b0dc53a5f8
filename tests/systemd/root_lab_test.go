// SPDX-License-Identifier: Apache-2.0

//go:build lab

package systemd

import (
	"context"
	"crypto/rand"
	"embed"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/kernelbroker/kernelbroker/tests/lab"
	"github.com/kernelbroker/kernelbroker/tests/support/debianroot"
)

// repo is the repository as this package's tests see it.
const repo = "../.."

// installed is the root of machines on which make install puts the product; services that a node does not need are
// installed but not running.
var installed = debianroot.Root{Packages: []string{
	"systemd", "systemd-sysv", "dbus", "libnss-systemd", "kmod", "iproute2", "procps", "strace", "lua5.3",
	"munge", "slurmctld", "slurmd", "slurmdbd", "slurm-client", "mariadb-server", "kexec-tools",
}}

//go:embed files
var files embed.FS

// disk builds the machines' disk: Debian's root, the installed product, and the test's files.
func disk(t *testing.T, dir string) boot {
	t.Helper()
	b := boot{dir: dir, hosts: two, limit: limit, channel: ",restrict=on", image: filepath.Join(dir, "root.ext4"), initrd: filepath.Join(dir, "initrd.img"),
		kernel: filepath.Join(repo, "build/kernels/stock/bzImage")}
	text, err := lab.BootInitrd(filepath.Join(repo, "build/kernels/stock"))
	if err != nil {
		t.Fatalf("%v (make kernels)", err)
	}
	write(t, b.initrd, string(text), 0o644)
	own := b.stageFiles(t)
	stage(t, filepath.Join(own, "stage.sh"), installed.Archive(t), dir, repo, b.image, b.initrd, probe(t))
	return b
}

// probe is this program, which is the probe in the machines.
func probe(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return self
}

// stageFiles writes the test's files, with a new token for the channel for commands and the machines' names, into a folder.
func (b *boot) stageFiles(t *testing.T) string {
	t.Helper()
	secret := make([]byte, 16)
	_, _ = rand.Read(secret)
	b.token = hex.EncodeToString(secret)
	own := filepath.Join(b.dir, "files")
	entries, err := files.ReadDir("files")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		text, err := files.ReadFile("files/" + e.Name())
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(own, e.Name()), string(text), 0o644)
	}
	write(t, filepath.Join(own, "token"), b.token+"\n", 0o600)
	names := "127.0.0.1 localhost\n"
	for _, h := range b.hosts {
		names += h.address + " " + h.name + "\n"
	}
	write(t, filepath.Join(own, "hosts"), names, 0o644)
	return own
}

// stage runs a script that makes a disk.
func stage(t *testing.T, args ...string) {
	t.Helper()
	args = append([]string{"sh"}, args...)
	if os.Geteuid() != 0 {
		// The root's files belong to users of its own.
		args = append([]string{"unshare", "--map-root-user", "--map-auto"}, args...)
	}
	command(t, args[0], args[1:]...)
}

func write(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

// command runs a program of this machine, which is not to fail.
func command(t *testing.T, name string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	// make install uses its caller's paths.
	cmd.Env = append(os.Environ(), "MAKEFLAGS=", "MAKELEVEL=")
	if out, err := cmd.CombinedOutput(); err != nil {
		if len(out) > 4000 {
			out = out[len(out)-4000:]
		}
		t.Fatalf("%s: %v\n%s", name, fmt.Errorf("%w (make deps-long build kernels?)", err), out)
	}
}
