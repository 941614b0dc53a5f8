// SPDX-License-Identifier: Apache-2.0

// Package debianroot makes archives of Debian systems, once each, with mmdebstrap and this machine's own Debian registry.
package debianroot

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
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

// archive is its name in the cache.
const archive = "root.tar"

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
	waiting := func() { t.Log("another process makes the same Debian root: waiting for it") }
	dir, err := build.Cache{Dir: cache}.Entry(t.Context(), "debian", hex.EncodeToString(sum[:8]), waiting, func(dir string) error {
		t.Logf("a Debian root with %s, once", strings.Join(r.Packages, " "))
		args = append([]string{"--format=tar", "--quiet"}, args...)
		args = append(args, "bookworm", filepath.Join(dir, archive))
		if said, err := exec.CommandContext(t.Context(), "mmdebstrap", append(args, sources(t)...)...).CombinedOutput(); err != nil {
			return fmt.Errorf("mmdebstrap: %w (make deps-long?)\n%s", err, said)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, archive)
}

// sources are this machine's own Debian sources, without other registries.
func sources(t *testing.T) (found []string) {
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
