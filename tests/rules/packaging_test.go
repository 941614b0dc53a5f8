// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"os/exec"
	"strings"
	"testing"
)

// Versions of packages sort as the versions of git do, by dpkg's and rpm's rules: a release candidate before its
// release, a commit after it.
func TestPackageVersions(t *testing.T) {
	if _, err := exec.LookPath("dpkg"); err != nil {
		t.Skip("no dpkg compares versions here")
	}
	before := ""
	for _, c := range []struct{ git, want string }{
		{"92c9820a", "0~92c9820a"},
		{"v0.1.0", "0.1.0"},
		{"v0.1.0-236-g12fa7a9", "0.1.0+236.g12fa7a9"},
		{"v0.2.0-alpha1", "0.2.0~alpha1"},
		{"v0.2.0-beta.1", "0.2.0~beta.1"},
		{"0.2.0-rc1", "0.2.0~rc1"},
		{"v0.2.0-rc1-5-g12fa7a9-dirty", "0.2.0~rc1+5.g12fa7a9.dirty"},
		{"v0.2.0-rc2", "0.2.0~rc2"},
		{"v0.2.0", "0.2.0"},
	} {
		out, err := exec.Command("../../.ci/package-version", c.git).Output()
		got := strings.TrimSpace(string(out))
		if err != nil || got != c.want {
			t.Errorf("%s: %q, %v; want %q", c.git, got, err, c.want)
		}
		if before != "" && exec.Command("dpkg", "--compare-versions", before, "lt", got).Run() != nil {
			t.Errorf("%s is not before %s", before, got)
		}
		before = got
	}
}
