// SPDX-License-Identifier: Apache-2.0

package slurmd

import (
	"context"
	"os"
	"path/filepath"
	"testing"
)

func TestAwaited(t *testing.T) {
	for _, c := range []struct {
		state string
		jobs  string // what squeue prints of those on the node; "fails": its error
		want  bool
	}{
		{"IDLE+NOT_RESPONDING+POWERING_UP", "fails", true},
		{"IDLE+POWERING_UP", "fails", true},
		{"IDLE", "fails", false},
		{"IDLE+COMPLETING+POWERING_UP", "fails", false},
		{"ALLOCATED+NOT_RESPONDING+POWERING_UP", "0                   ", true},
		{"ALLOCATED+POWERING_UP", "1                   ", false},
		{"MIXED+POWERING_UP", "0   \n0   ", true},
		{"MIXED+POWERING_UP", "0   \n1   ", false},
		{"ALLOCATED+POWERING_UP", "", false},
		{"ALLOCATED", "fails", false},
		{"ALLOCATED+COMPLETING+POWERING_UP", "fails", false},
		{"DOWN+POWERING_UP", "fails", false},
		{"DOWN+DRAIN+REBOOT_ISSUED Reason=kprof: mitgcm@1 for job 7 : reboot issued", "fails", true},
		{"DOWN+DRAIN+REBOOT_ISSUED Reason=new kernel : reboot issued", "fails", false},
		{"DOWN+DRAIN Reason=kprof: mitgcm@1 for job 7 : reboot timed out", "fails", false},
		{"DOWN+COMPLETING+REBOOT_ISSUED Reason=kprof: x", "fails", false},
	} {
		dir := t.TempDir()
		for name, script := range map[string]string{
			"scontrol": "[ \"$SCONTROL_LOCAL $*\" = '1 --oneliner show node n1' ] || exit 9\n" +
				"echo 'NodeName=n1 Arch=x86_64 State=" + c.state + " ThreadsPerCore=1 Reason=State=IDLE'\n",
			"squeue": "[ \"$*\" = '--noheader --nodelist=n1 --Format=reboot' ] || exit 9\n[ '" + c.jobs + "' != fails ] || exit 1\necho '" + c.jobs + "'\n",
		} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		got, err := Awaited(t.Context(), filepath.Join(dir, "scontrol"), "n1")
		if err != nil || got != c.want {
			t.Errorf("state %s, jobs %q: %v, %v", c.state, c.jobs, got, err)
		}
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "scontrol"), []byte("#!/bin/sh\necho 'NodeName=n1 State=ALLOCATED+POWERING_UP'\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"none", "scontrol"} { // without scontrol, and without squeue beside it
		if got, err := Awaited(context.Background(), filepath.Join(dir, name), "n1"); err == nil || got {
			t.Errorf("%s: %v, and no error", name, got)
		}
	}
}
