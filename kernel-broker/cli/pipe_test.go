// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// noFiles are a pipe, which would wait for a writer, and a device, which has no end.
func noFiles(t *testing.T) []string {
	t.Helper()
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{pipe, "/dev/zero"}
}

func TestSignWithIrregularFile(t *testing.T) {
	f := newFixture(t)
	dir, kernels := invented(t)
	f.must(0, "", "profile", "apply", dir, "--kernels", kernels)
	key, _ := f.key(t)
	image := filepath.Join(kernels, "mitgcm", "bzImage")
	for _, path := range noFiles(t) {
		f.must(3, path+" is no regular file", sign(key, "--kernel", path)...)
		f.must(3, path+" is no regular file", sign(key, "--kernel", image, "--initrd", path)...)
		f.must(3, path+" is no regular file", sign(key, "--kernel", image, "--manifest", path)...)
		f.must(3, path+" is no regular file", "policy", "check", path)
		f.must(3, path+" is no regular file", "audit", "verify", path)
		f.must(3, path+" is no regular file", "kernel", "register", "--no-boot-test", "--profile", "mitgcm", "--kernel", image, "--site", path)
	}
	f.must(3, "/dev/zero has more than", "key", "generate", filepath.Join(t.TempDir(), "key"), "--passphrase-file", "/dev/zero")
}

func TestApplyIrregularFile(t *testing.T) {
	for _, name := range []string{"bzImage", "kernel.json"} {
		for _, path := range noFiles(t) {
			f := newFixture(t)
			dir, kernels := invented(t)
			at := filepath.Join(kernels, "mitgcm", name)
			if err := os.Remove(at); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(path, at); err != nil {
				t.Fatal(err)
			}
			f.must(3, "is no regular file", "profile", "apply", dir, "--kernels", kernels)
			if n := f.files.count(); n != 0 {
				t.Errorf("%s is %s: %d files are stored", name, path, n)
			}
		}
	}
}

// Limits of images, initrds and manifests are the same for every command.
func TestSignWithOversizedFiles(t *testing.T) {
	f := newFixture(t)
	dir, kernels := invented(t)
	f.must(0, "", "profile", "apply", dir, "--kernels", kernels)
	key, _ := f.key(t)
	large := filepath.Join(t.TempDir(), "large")
	if err := os.WriteFile(large, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(large, 1<<40); err != nil { // a sparse file
		t.Skip(err)
	}
	f.must(3, "1099511627776 bytes, at most 268435456", sign(key, "--kernel", large)...)
	f.must(3, "1099511627776 bytes, at most 1073741824", sign(key, "--kernel", filepath.Join(kernels, "mitgcm", "bzImage"), "--initrd", large)...)
	if err := os.Rename(large, filepath.Join(kernels, "mitgcm", "bzImage")); err != nil {
		t.Fatal(err)
	}
	f.must(3, "1099511627776 bytes, at most 268435456", "profile", "apply", dir, "--kernels", kernels)
}
