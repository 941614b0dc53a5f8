// SPDX-License-Identifier: Apache-2.0

package slurmd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/decide"
)

// The mark is read after a crash, when it may be incomplete. It is valid only for the boot in which it was written.
func FuzzReadMark(f *testing.F) {
	dir := f.TempDir()
	s := &Slurmd{MarkFile: filepath.Join(dir, "mark"), BootID: "b1"}
	for _, mark := range []decide.Mark{decide.Started, decide.Stopped} {
		if err := s.writeMark(mark, 12); err != nil {
			f.Fatal(err)
		}
		text, err := os.ReadFile(s.MarkFile)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte("b2 started 1\n"))
	f.Add([]byte("b1 started -1\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if err := os.WriteFile(s.MarkFile, text, 0o600); err != nil {
			t.Fatal(err)
		}
		mark, start, err := s.readMark()
		if err != nil || mark == decide.Untouched {
			return
		}
		if !strings.HasPrefix(strings.TrimSpace(string(text)), "b1") {
			t.Errorf("%q speaks of this boot", text)
		}
		if err := s.writeMark(mark, start); err != nil {
			t.Fatal(err)
		}
		if again, number, err := s.readMark(); again != mark || number != start || err != nil {
			t.Errorf("%v %d became %v %d, %v", mark, start, again, number, err)
		}
	})
}

func FuzzAwaited(f *testing.F) {
	f.Add("NodeName=n1 Arch=x86_64 State=IDLE+POWERING_UP ThreadsPerCore=1 Reason=x State=DOWN")
	f.Add("NodeName=n1 State=IDLE+POWERING_UP+COMPLETING")
	f.Add("State=")
	f.Fuzz(func(t *testing.T, out string) {
		if waits, jobs := awaited(out); waits && (!strings.Contains(out, "State=IDLE") && !jobs || !strings.Contains(out, "+POWERING_UP")) {
			t.Errorf("%q awaits a boot", out)
		}
	})
}
