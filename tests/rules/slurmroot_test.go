// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// aptScript is apt with one suite: OFFER is the version of slurmctld in it, GONE and BROKEN its errors.
const aptScript = `#!/bin/sh
case "$*" in
indextargets*) echo http://mirror/debian/ ;;
update*) [ -z "$GONE" ] || { echo "cannot reach mirror" >&2; exit 100; } ;;
install*)
	[ -z "$BROKEN" ] || { echo "unmet dependencies" >&2; exit 100; }
	archives=$(sed -n 's/^Dir::Cache "\(.*\)";/\1/p' "$APT_CONFIG")/archives
	tree=$(mktemp -d)
	mkdir -p "$tree/DEBIAN" "$tree/usr/include/slurm" "$tree/lib64"
	: >"$tree/usr/include/slurm/spank.h"
	ln -s /lib/loader "$tree/lib64/ld.so"
	printf 'Package: slurmctld\nVersion: %s\nArchitecture: amd64\nMaintainer: a <a@b>\nDescription: a\n' "$OFFER" >"$tree/DEBIAN/control"
	dpkg-deb -b "$tree" "$archives/slurmctld_${OFFER}_amd64.deb" >/dev/null ;;
esac
`

// Debian's sid moves: what was fetched before is used on, and a version that cannot be had is not an error of its own.
func TestSlurmRoot(t *testing.T) {
	script, err := filepath.Abs("../../.ci/slurm-root")
	if err != nil {
		t.Fatal(err)
	}
	bin, cache := t.TempDir(), t.TempDir()
	for name, text := range map[string]string{
		"apt-get":   aptScript,
		"apt-cache": "#!/bin/sh\n[ -z \"$OFFER\" ] || echo \"Version: $OFFER\"\n",
	} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	run := func(version string, env ...string) (int, string, string) {
		var out, errs strings.Builder
		cmd := exec.Command(script, version)
		cmd.Env = append(os.Environ(), append(env, "KB_CACHE="+cache, "PATH="+bin+":"+os.Getenv("PATH"))...)
		cmd.Stdout, cmd.Stderr = &out, &errs
		err := cmd.Run()
		if cmd.ProcessState == nil {
			t.Fatal(err)
		}
		return cmd.ProcessState.ExitCode(), strings.TrimSpace(out.String()), errs.String()
	}
	refused := func(want int, text, version string, env ...string) {
		t.Helper()
		if exit, out, errs := run(version, env...); exit != want || out != "" || !strings.Contains(errs, text) {
			t.Errorf("Slurm %s with %v: exit %d, root %q, want %d and %q:\n%s", version, env, exit, out, want, text, errs)
		}
	}
	refused(2, "no Debian suite", "20.11")
	refused(3, "sid has Slurm 26.11.1-1, not 26.05", "26.05", "OFFER=26.11.1-1")
	refused(3, "sid has Slurm no more, not 26.05", "26.05")
	refused(3, "sid cannot be installed today", "26.05", "OFFER=26.05.5-1", "BROKEN=1")
	refused(1, "cannot reach mirror", "26.05", "GONE=1")
	refused(1, "unmet dependencies", "24.11", "OFFER=24.11.5-1", "BROKEN=1")

	exit, root, errs := run("26.05", "OFFER=26.05.5-1")
	if exit != 0 || !strings.HasPrefix(filepath.Base(root), "slurmctld_26.05.5-1_amd64-") {
		t.Fatalf("Slurm 26.05: exit %d, root %q:\n%s", exit, root, errs)
	}
	if to, err := os.Readlink(filepath.Join(root, "lib64/ld.so")); err != nil || filepath.IsAbs(to) {
		t.Errorf("the root's loader leads to %q, %v", to, err)
	}
	old := func() {
		t.Helper()
		if out, err := exec.Command("touch", "-d", "8 days ago", filepath.Join(cache, "slurm-roots/sid.current")).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	for _, env := range [][]string{{"OFFER=26.11.1-1"}, {"GONE=1"}, {"OFFER=26.05.6-1", "BROKEN=1"}} {
		old()
		if exit, again, errs := run("26.05", env...); exit != 0 || again != root || !strings.Contains(errs, "Slurm 26.05 of slurmctld_26.05.5-1_amd64 will do") {
			t.Errorf("with %v: exit %d, root %q, want %q:\n%s", env, exit, again, root, errs)
		}
	}
	old()
	if exit, newer, errs := run("26.05", "OFFER=26.05.6-1"); exit != 0 || !strings.Contains(newer, "slurmctld_26.05.6-1") {
		t.Errorf("a newer package: exit %d, root %q:\n%s", exit, newer, errs)
	}
}
