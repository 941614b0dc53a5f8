// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kernelbroker/kernelbroker/tests/support/slurmroot"
)

// needHost skips where the host has no Slurm; CI's list of allowed skips
// decides whether that is all right.
func needHost(t *testing.T) {
	t.Helper()
	for _, p := range append([]string{busybox, slurmPlugins}, programs...) {
		if _, err := os.Stat(p); err != nil {
			t.Skipf("needs Debian's Slurm, munge, kexec-tools and busybox-static: %v", err)
		}
	}
}

// testSystem is the machine's own root, or that of the Slurm that KB_SLURM names.
func testSystem(t *testing.T) system {
	t.Helper()
	if slurmroot.Wanted() == slurmroot.Default {
		needHost(t)
		return system{Root: slurmroot.Root{Version: slurmroot.Default, Dir: "/"}}
	}
	root, err := slurmroot.Find(t.Context(), "../..", slurmroot.Wanted())
	if err != nil {
		t.Fatal(err)
	}
	return system{Root: root}
}

func testEntries(t *testing.T) []entry {
	t.Helper()
	kernel := filepath.Join(t.TempDir(), "bzImage")
	if err := os.WriteFile(kernel, []byte("kernel"), 0o644); err != nil {
		t.Fatal(err)
	}
	list, err := imageEntries(Options{Repo: t.TempDir(), WithoutProduct: true}, testSystem(t), Kernel{Image: kernel})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestImageEntries(t *testing.T) {
	at := map[string]entry{}
	for _, e := range testEntries(t) {
		if _, twice := at[e.target]; twice {
			t.Errorf("%s is in the image twice", e.target)
		}
		at[e.target] = e
	}
	for _, p := range []string{
		"/usr/sbin/slurmd", "/usr/sbin/slurmstepd", "/usr/sbin/munged", "/usr/sbin/kexec", "/usr/bin/bash",
		"/usr/bin/srun", "/usr/bin/busybox", "/usr/sbin/init", "/usr/bin/hostname", "/usr/lib64/ld-linux-x86-64.so.2",
		slurmPlugins + "/auth_munge.so", slurmPlugins + "/libslurmfull.so", "/boot/vmlinuz", "/etc/inittab",
		"/usr/libexec/kblab/rc", "/usr/libexec/kernel-broker", "/usr/lib/kernel-broker",
	} {
		if _, ok := at[p]; !ok {
			t.Errorf("the image lacks %s", p)
		}
	}
	for p := range at {
		if strings.HasPrefix(p, "/bin/") || strings.HasPrefix(p, "/lib/") || strings.HasPrefix(p, "/sbin/") {
			t.Errorf("%s: goes through a link of the merged /usr", p)
		}
	}
}

// TestImageIsClosed checks that the loader finds every library in the image.
func TestImageIsClosed(t *testing.T) {
	list := testEntries(t)
	names := map[string]bool{}
	for _, e := range list {
		names[filepath.Base(e.target)] = true
	}
	for _, e := range list {
		if e.source == "" || !isELF(e.source) {
			continue
		}
		f, err := elf.Open(e.source)
		if err != nil {
			t.Fatal(err)
		}
		libraries, err := f.ImportedLibraries()
		f.Close()
		if err != nil {
			continue // static
		}
		for _, l := range libraries {
			if !names[l] {
				t.Errorf("%s needs %s, which the image lacks", e.target, l)
			}
		}
	}
}

func TestDigestCoversEveryChange(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f")
	set := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	sum := func(list ...entry) string {
		s, _, err := digest(list)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	set("one")
	base := entry{target: "/f", source: file, mode: 0o755}
	seen := map[string]string{sum(base): "base"}
	check := func(what, s string) {
		if other, same := seen[s]; same {
			t.Errorf("%s has the digest of %s", what, other)
		}
		seen[s] = what
	}
	set("two")
	check("content", sum(base))
	moved, mode := base, base
	moved.target, mode.mode = "/g", 0o644
	check("path", sum(moved))
	check("mode", sum(mode))
	check("text", sum(entry{target: "/f", text: []byte("two"), mode: 0o755}))
	check("link", sum(entry{target: "/f", link: "two"}))
	check("nothing", sum())
}

func TestBuildImage(t *testing.T) {
	if _, err := exec.LookPath("/usr/sbin/mke2fs"); err != nil {
		t.Skipf("needs e2fsprogs: %v", err)
	}
	cache := t.TempDir()
	list := []entry{
		{target: "/etc", mode: os.ModeDir | 0o755},
		{target: "/etc/name", text: []byte("lab\n"), mode: 0o755},
		{target: "/link", link: "etc/name"},
	}
	path, cached, err := buildImage(t.Context(), cache, list)
	if err != nil || cached {
		t.Fatalf("first build: %v, cached %v", err, cached)
	}
	out, err := exec.Command("/usr/sbin/debugfs", "-R", "cat /etc/name", path).Output()
	if err != nil || string(out) != "lab\n" {
		t.Errorf("file in the image: %q, %v", out, err)
	}
	again, cached, err := buildImage(t.Context(), cache, list)
	if err != nil || !cached || again != path {
		t.Errorf("second build: %q, %v, cached %v", again, err, cached)
	}
	list[1].text = []byte("other\n")
	other, cached, err := buildImage(t.Context(), cache, list)
	if err != nil || cached || other == path {
		t.Errorf("changed build: %q, %v, cached %v", other, err, cached)
	}
}

func TestWorkloads(t *testing.T) {
	repo := t.TempDir()
	dir := filepath.Join(repo, "build/workloads")
	if err := os.MkdirAll(filepath.Join(dir, "objects"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, mode := range map[string]os.FileMode{"replay": 0o755, "replay-sanitized": 0o755, "replay.o": 0o644} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := workloads(repo); err != nil || len(got) != 1 || got[0] != filepath.Join(dir, "replay") {
		t.Errorf("%q, %v", got, err)
	}
}
