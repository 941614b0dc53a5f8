// SPDX-License-Identifier: Apache-2.0

// Package debianroot makes archives of Debian systems, once each, with mmdebstrap and this machine's own Debian registry.
package debianroot

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/build"
)

// Root is a Debian system.
type Root struct {
	Packages []string
	Hooks    []string // more arguments of mmdebstrap
}

// unwanted keeps the root small.
var unwanted = []string{
	"/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*",
	"/usr/share/mysql/*/errmsg.sys.bak", "/usr/bin/mariadb-backup", "/usr/bin/aria_*", "/usr/share/zoneinfo/*",
}

// Archive returns the path of the root's tar archive, from the cache where one like it was made before.
func (r Root) Archive(t *testing.T) string {
	t.Helper()
	cache, err := build.DefaultCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"--variant=apt", "--include=" + strings.Join(r.Packages, ","), "--aptopt=APT::Install-Recommends \"false\""}
	for _, path := range unwanted {
		args = append(args, "--dpkgopt=path-exclude="+path)
	}
	args = append(args, r.Hooks...)
	sum := sha256.Sum256([]byte(strings.Join(args, "\n")))
	path := filepath.Join(cache, "debian", hex.EncodeToString(sum[:8])+".tar")
	if _, err := os.Stat(path); err == nil {
		return path
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	made := path + ".new"
	args = append(args, "bookworm", made)
	args = append(args, Sources(t)...)
	t.Logf("a Debian root with %s, once", strings.Join(r.Packages, " "))
	said, err := exec.CommandContext(t.Context(), "mmdebstrap", append([]string{"--format=tar", "--quiet"}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("mmdebstrap: %v\n%s", err, said)
	}
	if err := os.Rename(made, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// Sources are this machine's own Debian sources, without other registries.
func Sources(t *testing.T) (found []string) {
	t.Helper()
	for _, name := range []string{"/etc/apt/sources.list", "/etc/apt/sources.list.d/debian.sources"} {
		if text, err := os.ReadFile(name); err == nil && strings.Contains(string(text), "bookworm") {
			found = append(found, name)
		}
	}
	if len(found) == 0 {
		t.Fatal("this machine has no apt sources for Debian 12 (/etc/apt/sources.list.d/debian.sources)")
	}
	return found
}
