// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"strings"
	"testing"
)

// The role slurm configures what docs/ops/slurm.conf.sample asks of administrators.
func TestRoleHasSettingsOfSample(t *testing.T) {
	role := string(read(t, "ansible/roles/slurm/vars/main.yml"))
	_, role, found := strings.Cut(role, "\nslurm_kernel_broker_conf:\n")
	if !found {
		t.Fatal("the role has no slurm_kernel_broker_conf")
	}
	role, _, _ = strings.Cut(role, "\n\n")
	settings := 0
	for line := range strings.Lines(string(read(t, "docs/ops/slurm.conf.sample"))) {
		key, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		if !ok || strings.HasPrefix(line, "#") {
			continue
		}
		settings++
		if !strings.Contains(role+"\n", fmt.Sprintf("  %s: %s\n", key, value)) {
			t.Errorf("ansible/roles/slurm/vars/main.yml has no %s: %s, which the sample has", key, value)
		}
	}
	if n := strings.Count(role+"\n", "\n"); n != settings {
		t.Errorf("the role has %d settings, the sample %d", n, settings)
	}
}
