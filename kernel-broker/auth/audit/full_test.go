// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// fullVariable has the test's program write a log whose file may not grow any
// more in the middle of a line, as on a disk that is full.
const fullVariable = "AUDIT_TEST_FULL"

func writeUntilFull(dir string) error {
	// Too large a file is an error, and not the end.
	signal.Ignore(unix.SIGXFSZ)
	l, err := Open(Options{Dir: dir, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &before); err != nil {
		return err
	}
	// One byte; a part; all but the line's end; and, as the next record mends
	// that, a part of the end of the torn line.
	for _, room := range []int64{1, 40, int64(len(`{"seq":1,"prev":"","at":"","kind":"x"}`)), 0} {
		if _, err := l.Append(Entry{Kind: "x"}, true); err != nil {
			return fmt.Errorf("with room: %w", err)
		}
		for _, more := range []int64{room, room + 3} {
			limit := before
			limit.Cur = uint64(l.size + more)
			if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &limit); err != nil {
				return err
			}
			if _, err := l.Append(Entry{Kind: "x"}, true); !errors.Is(err, kb.ErrUnavailable) || !errors.Is(err, unix.EFBIG) {
				return fmt.Errorf("%d bytes of room: %w", more, err)
			}
			if room > 0 && !l.torn {
				return fmt.Errorf("%d bytes of room: no line is torn", more)
			}
		}
		if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &before); err != nil {
			return err
		}
	}
	if _, err := l.Append(Entry{Kind: "last"}, true); err != nil {
		return err
	}
	return l.Close()
}

// A line of which a part got to the disk is torn. It is ended when
// there is room again, however often that runs out of room in its turn.
func TestADiskThatFillsUpInALine(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "audit")
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fullVariable+"="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	r := verify(t, dir)
	if !r.Sound() || len(r.Notes) == 0 {
		t.Errorf("%+v", r)
	}
	for _, note := range r.Notes {
		if !strings.Contains(note, "torn") {
			t.Error(note)
		}
	}
	text := read(t, dir)
	if n := strings.Count(string(text), tornEnd+"\n"); n < 3 {
		t.Errorf("%d torn lines in\n%s", n, text)
	}
}
