// SPDX-License-Identifier: Apache-2.0

package slurmd

import (
	"context"
	"os"
	"path/filepath"
	"testing"
)

func TestAwaited(t *testing.T) {
	for state, want := range map[string]bool{
		"IDLE+NOT_RESPONDING+POWERING_UP": true,
		"IDLE+POWERING_UP":                true,
		"IDLE":                            false,
		"IDLE+COMPLETING+POWERING_UP":     false,
		"ALLOCATED+POWERING_UP":           false,
		"MIXED+POWERING_UP":               false,
		"DOWN+POWERING_UP":                false,
		"DOWN+DRAIN+REBOOT_ISSUED Reason=kprof: mitgcm@1 for job 7 : reboot issued": true,
		"DOWN+DRAIN+REBOOT_ISSUED Reason=new kernel : reboot issued":                false,
		"DOWN+DRAIN Reason=kprof: mitgcm@1 for job 7 : reboot timed out":            false,
		"DOWN+COMPLETING+REBOOT_ISSUED Reason=kprof: x":                             false,
	} {
		script := "#!/bin/sh\n[ \"$SCONTROL_LOCAL $*\" = '1 --oneliner show node n1' ] || exit 9\n" +
			"echo 'NodeName=n1 Arch=x86_64 State=" + state + " ThreadsPerCore=1 Reason=State=IDLE'\n"
		scontrol := filepath.Join(t.TempDir(), "scontrol")
		if err := os.WriteFile(scontrol, []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
		got, err := Awaited(t.Context(), scontrol, "n1")
		if err != nil || got != want {
			t.Errorf("state %s: %v, %v", state, got, err)
		}
	}
	if _, err := Awaited(context.Background(), filepath.Join(t.TempDir(), "none"), "n1"); err == nil {
		t.Error("no scontrol and no error")
	}
}
