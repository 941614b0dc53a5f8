// SPDX-License-Identifier: Apache-2.0

//go:build lab

package systemd

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// pack makes the packages of an installed tree.
const pack = `set -eu
cd "$1" && . .ci/tools.env
NFPM=$(.ci/cache-dir)/tools/nfpm-$NFPM_VERSION/nfpm
export NFPM
.ci/packages "$2" "$3" "$4"`

// standIn makes an rpm package NAME that provides what the other arguments say, and has the folders that a distribution has.
const standIn = `set -eu
cd "$1" && . .ci/tools.env
out=$2 name=$3
shift 3
{
	printf 'name: %s\narch: amd64\nversion: 1.0.0\nmaintainer: Tests <tests@invalid.example>\ndescription: stands for others\nprovides:\n' "$name"
	printf '  - %s\n' "$@"
	printf 'contents:\n'
	printf '  - {dst: /usr/share/%s, type: dir}\n' licenses man/man1 man/man8
} >"$out/$name.yaml"
"$(.ci/cache-dir)/tools/nfpm-$NFPM_VERSION/nfpm" package --config "$out/$name.yaml" --packager rpm --target "$out"`

// TestPackages checks that packages are clean and reproducible, and that an upgrade keeps what an administrator changed
// and a purge leaves only data. It needs no virtual machine: dpkg and rpm run in a Debian root.
func TestPackages(t *testing.T) {
	dir := t.TempDir()
	top, err := filepath.Abs(repo)
	if err != nil {
		t.Fatal(err)
	}
	// -o: what was built is packed, nothing is built meanwhile.
	command(t, "make", "-s", "-C", top, "-o", "build", "packages", "VERSION=v0.1.0")
	made := filepath.Join(top, "build/packages")
	tree := filepath.Join(made, "root")
	again := filepath.Join(dir, "again")
	command(t, "sh", "-c", pack, "pack", top, tree, "v0.1.0", again)
	for _, kind := range []string{"deb", "rpm"} {
		found, err := filepath.Glob(filepath.Join(again, "*."+kind))
		if err != nil || len(found) != 5 {
			t.Fatalf("%s packages %q, %v", kind, found, err)
		}
		for _, path := range found {
			if !bytes.Equal(contents(t, path), contents(t, filepath.Join(made, filepath.Base(path)))) {
				t.Errorf("%s has other bytes the second time", filepath.Base(path))
			}
		}
		linter := []string{"lintian", "--allow-root", "--fail-on", "error,warning"}
		if kind == "rpm" {
			linter = []string{"rpmlint", "--strict", "--config", filepath.Join(top, "packaging/rpmlint.toml")}
		}
		if out, err := exec.Command(linter[0], append(linter[1:], found...)...).CombinedOutput(); err != nil {
			t.Errorf("%s: %v (make deps-long)\n%s", linter[0], err, out)
		}
	}

	// The next version has other samples.
	next := filepath.Join(dir, "root")
	command(t, "cp", "-a", tree, next)
	samples, err := filepath.Glob(filepath.Join(next, "*/etc/kernel-broker/*.yaml.sample"))
	if err != nil || len(samples) == 0 {
		t.Fatalf("samples %q, %v", samples, err)
	}
	for _, path := range samples {
		write(t, path, string(contents(t, path))+"# of the new version\n", 0o644)
	}
	newer := filepath.Join(dir, "newer")
	command(t, "sh", "-c", pack, "pack", top, next, "v0.2.0", newer)

	distribution := t.TempDir()
	for name, slurm := range map[string]string{"distribution": "22.05.8", "slurm-new": "99.05.1"} {
		command(t, "sh", "-c", standIn, "standIn", top, distribution, name, "systemd", "munge", "kexec-tools", "glibc", "make", "gcc", "slurm = "+slurm)
	}
	for _, args := range [][]string{
		{"files/packages.sh", installed.Archive(t), again, newer, dir},
		{"files/rpm.sh", installed.Archive(t), again, newer, dir, distribution},
	} {
		args = append([]string{"--mount", "--pid", "--fork", "sh"}, args...)
		if os.Geteuid() != 0 {
			args = append([]string{"--map-root-user", "--map-auto"}, args...)
		}
		command(t, "unshare", args...)
	}
}

func contents(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
