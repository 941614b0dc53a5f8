// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	bootID  = "8ad0c5a4-0000-4000-8000-000000000001"
	refused = "boot_id=" + bootID + " time=1790000000 job=7 cause=wanted mitgcm, node runs stock@1 (6.1), because it is another profile\n"
)

func TestRefusals(t *testing.T) {
	state := filepath.Join(t.TempDir(), "node.state")
	path := filepath.Join(filepath.Dir(state), "gate.refusals")
	if got := Refusals(state, bootID); got != nil {
		t.Errorf("without a file: %v", got)
	}
	text := strings.Replace(refused, "0001 ", "0002 ", 1) + refused + "boot_id=\n\nboot_id=" + bootID + " time=x job=7 cause=x\nboot_id=" + bootID +
		" time=1 job=-7 cause=x\nboot_id=" + bootID + " job=7 time=1 cause=x\ntime=1 job=7 cause=x\n" + strings.Replace(refused, "=7 ", "=8 ", 1) + strings.TrimSuffix(refused, "\n")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got := Refusals(state, bootID)
	if len(got) != 2 || got[0].Job != 7 || got[1].Job != 8 || !got[0].At.Equal(time.Unix(1790000000, 0)) ||
		got[0].Cause != "wanted mitgcm, node runs stock@1 (6.1), because it is another profile" {
		t.Errorf("got %+v", got)
	}
	if got := Refusals(state, ""); got != nil {
		t.Errorf("of no boot: %v", got)
	}
}

// A fifo must not hang the agent, a link not lead it elsewhere.
func TestRefusalsOfAnOddFile(t *testing.T) {
	state := filepath.Join(t.TempDir(), "node.state")
	path := filepath.Join(filepath.Dir(state), "gate.refusals")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := Refusals(state, bootID); got != nil {
		t.Errorf("of a fifo: %v", got)
	}
	if err := os.Rename(path, path+".fifo"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path+".file", []byte(refused), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(path+".file", path); err != nil {
		t.Fatal(err)
	}
	if got := Refusals(state, bootID); got != nil {
		t.Errorf("of a link: %v", got)
	}
}

func FuzzRefusal(f *testing.F) {
	f.Add(refused)
	f.Add("boot_id= time= job= cause=")
	f.Fuzz(func(t *testing.T, line string) {
		r, boot, ok := parseRefusal(line)
		if ok && (boot == "" || r.At.IsZero()) {
			t.Errorf("%q is %+v of boot %q", line, r, boot)
		}
	})
}
