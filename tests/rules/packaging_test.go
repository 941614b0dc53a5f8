// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// The plugin's package breaks all other releases of what loads it: Debian's packages of Slurm and SchedMD's, as they are
// recommended by the packages of agent and broker.
func TestPluginBreaksOtherSlurm(t *testing.T) {
	var plugin, agent, broker struct {
		Overrides struct {
			Deb struct {
				Recommends []string
				Deb        struct{ Breaks []string }
			}
		}
	}
	for path, into := range map[string]any{"plugin": &plugin, "agent": &agent, "broker": &broker} {
		if err := yaml.Unmarshal(read(t, "packaging/"+path+".yaml"), into); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
	found := 0
	for _, group := range append(agent.Overrides.Deb.Recommends, broker.Overrides.Deb.Recommends...) {
		for name := range strings.SplitSeq(group, " | ") {
			if strings.HasSuffix(name, "slurmctld") {
				continue
			}
			found++
			for _, bound := range []string{" (<< ${SLURM}~)", " (>= ${SLURM_NEXT}~)"} {
				if !slices.Contains(plugin.Overrides.Deb.Deb.Breaks, name+bound) {
					t.Errorf("packaging/plugin.yaml: breaks has no %s%s", name, bound)
				}
			}
		}
	}
	if found != 4 {
		t.Errorf("found %d packages that load the plugin, want slurmd and the client of two packagings", found)
	}
}

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
