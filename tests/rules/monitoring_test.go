// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// The alert rules fire for what they are about and for nothing else.
func TestAlertsFire(t *testing.T) {
	if _, err := exec.LookPath("promtool"); err != nil {
		t.Skip("promtool is not on this machine (package prometheus)")
	}
	command := exec.Command("promtool", "test", "rules", "alerts.test.yaml")
	command.Dir = filepath.Join(root, "docs/ops/monitoring")
	if out, err := command.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
