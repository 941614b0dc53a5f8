// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// killed ends a writer as kill -9 does: nothing is synced, and the folder is free.
func killed(t *testing.T, l *Log) {
	t.Helper()
	if l.late != nil {
		l.late.Stop()
	}
	for _, file := range []interface{ Close() error }{l.file, l.head, l.lock} {
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// idle keeps a writer from syncing what nobody waits for, however long a test takes.
func idle(l *Log) { l.late = time.AfterFunc(time.Hour, func() {}) }

// noted fails unless the log is sound and the notes are these, in their order.
func noted(t *testing.T, dir string, words ...string) Report {
	t.Helper()
	r := verify(t, dir)
	same := r.Sound() && len(r.Notes) == len(words)
	for i := range min(len(words), len(r.Notes)) {
		same = same && strings.Contains(r.Notes[i], words[i])
	}
	if !same {
		t.Errorf("notes %q, want %q; problems %v", r.Notes, words, r.Problems)
	}
	return r
}

// behind leaves a log of four records whose writer was killed when two of them were
// known to be on disk.
func behind(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "audit")
	l := open(t, dir, 0)
	add(t, l, "one", "two")
	idle(l)
	for range 2 {
		if _, err := l.Append(Entry{Kind: "look"}, false); err != nil {
			t.Fatal(err)
		}
	}
	killed(t, l)
	return dir
}

// A restart does not make records certain of which a sync had failed: the log goes
// on in another file, whose first record says which they are.
func TestUncertainTailOutlivesItsWriter(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "audit")
	l, _ := clocked(t, dir, 0)
	add(t, l, "one")
	l.file = &failing{file: l.file, fails: 1}
	if _, err := l.Append(Entry{Kind: "decision", Object: "lost"}, true); !errors.Is(err, unix.EIO) {
		t.Fatal(err)
	}
	killed(t, l)
	l, _ = clocked(t, dir, 0)
	if text, err := l.Health(); err != nil {
		t.Errorf("%q, %v", text, err)
	}
	if head, err := readHead(dir); err != nil || head.Seq != 3 {
		t.Errorf("what is in doubt is said, and not on disk: %v, %v", head, err)
	}
	add(t, l, "next")
	shut(t, l)
	noted(t, dir, "audit-000000000003.log:1: records 2 to 2 were written, and not known to be on the disk when their writer ended")
	// That is said once.
	l = open(t, dir, 0)
	add(t, l, "later")
	shut(t, l)
	if r := noted(t, dir, "records 2 to 2"); r.Files != 2 || r.Records != 5 {
		t.Errorf("%+v", r)
	}
}

// A sync that fails after a restart puts nothing in doubt that the head knows.
func TestUncertainTailAfterARestart(t *testing.T) {
	dir := write(t, 3)
	l, now := clocked(t, dir, 0)
	l.file = &failing{file: l.file, fails: 1}
	before := l.Head().Seq
	if _, err := l.Append(Entry{Kind: "x"}, true); !errors.Is(err, unix.EIO) {
		t.Fatal(err)
	}
	*now = now.Add(2 * resumePause)
	add(t, l, "more")
	shut(t, l)
	found(t, verify(t, dir), fmt.Sprintf("records %d to %d may not be on disk", before+1, before+1))
}

// snapshot is what the files of a folder hold.
func snapshot(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]byte{}
	for _, entry := range entries {
		if all[entry.Name()], err = os.ReadFile(filepath.Join(dir, entry.Name())); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

func restore(t *testing.T, all map[string][]byte) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range all {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o640); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// Killed at any instant of going on in another file, also where a line was torn
// before it, the log is sound, and what was in doubt is said by the next writer.
func TestKilledWhileItGoesOn(t *testing.T) {
	for name, torn := range map[string]string{"whole": "", "torn": `{"seq":5,"prev":"`} {
		t.Run(name, func(t *testing.T) {
			dir := behind(t)
			first := files(t, dir)[0]
			change(t, first, func(b []byte) []byte { return append(b, torn...) })
			before := snapshot(t, dir)
			l := open(t, dir, 0)
			killed(t, l)
			after := snapshot(t, dir)
			last := filepath.Base(files(t, dir)[1])
			// The old file grows first, where a line of it is torn, then there is a
			// new one, which grows, and the head is written last.
			var instants []map[string][]byte
			old := filepath.Base(first)
			for n := len(before[old]); n <= len(after[old]); n += 1 + len(after[old])/40 {
				state := maps.Clone(before)
				state[old] = after[old][:n]
				instants = append(instants, state)
			}
			for n := 0; n <= len(after[last]); n += 1 + len(after[last])/40 {
				state := maps.Clone(before)
				state[old], state[last] = after[old], after[last][:n]
				instants = append(instants, state)
			}
			whole := maps.Clone(after)
			whole[headName] = before[headName]
			instants = append(instants, whole, after)
			for i, state := range instants {
				dir := restore(t, state)
				if r := verify(t, dir); !r.Sound() {
					t.Fatalf("instant %d: %v", i, r.Problems)
				}
				// The next one is killed as well, when it has gone on.
				killed(t, open(t, dir, 0))
				l := open(t, dir, 0)
				add(t, l, "next")
				shut(t, l)
				r := verify(t, dir)
				if !r.Sound() || !strings.Contains(strings.Join(r.Notes, "\n"), "records 3 to ") {
					t.Fatalf("instant %d: %v, %v", i, r.Problems, r.Notes)
				}
				if again := open(t, dir, 0); len(files(t, dir)) != r.Files || again.Close() != nil {
					t.Fatalf("instant %d: the log goes on in another file again", i)
				}
			}
		})
	}
}

// behindVariable has the test's program open a log whose head is behind its files,
// on a disk that takes nothing, or a part of a line.
const behindVariable = "AUDIT_TEST_BEHIND"

func goOnLate(dir string) error {
	signal.Ignore(unix.SIGXFSZ)
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &before); err != nil {
		return err
	}
	limited := func(size uint64) error {
		limit := before
		limit.Cur = size
		return unix.Setrlimit(unix.RLIMIT_FSIZE, &limit)
	}
	if err := limited(0); err != nil {
		return err
	}
	now := time.Unix(1e9, 0)
	l, err := Open(Options{Dir: dir, Now: func() time.Time { return now }, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return fmt.Errorf("the broker does not start: %w", err)
	}
	for _, size := range []uint64{0, 40, 60} {
		if err := limited(size); err != nil {
			return err
		}
		now = now.Add(2 * resumePause)
		for range 3 {
			if _, err := l.Append(Entry{Kind: "x"}, true); !errors.Is(err, kb.ErrUnavailable) || !errors.Is(err, unix.EFBIG) {
				return fmt.Errorf("%d bytes of room: %w", size, err)
			}
		}
		if text, err := l.Health(); err == nil || !strings.Contains(err.Error(), "records 3 to 4 were written") {
			return fmt.Errorf("%d bytes of room: the log is %q, %w", size, text, err)
		}
	}
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &before); err != nil {
		return err
	}
	now = now.Add(2 * resumePause)
	if _, err := l.Append(Entry{Kind: "x"}, true); err != nil {
		return fmt.Errorf("with room: %w", err)
	}
	if _, err := l.Health(); err != nil {
		return err
	}
	return l.Close()
}

// A disk that does not take that record leaves the broker at work, ill and without
// another record, until it does.
func TestADiskThatDoesNotLetItGoOn(t *testing.T) {
	for name, torn := range map[string]string{"whole": "", "torn": `{"seq":5,"prev":"`} {
		dir := behind(t)
		change(t, files(t, dir)[0], func(b []byte) []byte { return append(b, torn...) })
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), behindVariable+"="+dir)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", name, err, out)
		}
		r := verify(t, dir)
		if !r.Sound() || !strings.Contains(strings.Join(r.Notes, "\n"), "records 3 to ") {
			t.Errorf("%s: %v, %v", name, r.Problems, r.Notes)
		}
	}
}

// Writers that are killed with records that nobody waited for leave sound logs, and
// each time the next one says which records these were.
func TestKilledLazyWriters(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "audit")
	notes := 0
	for round := range 5 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), writerVariable+"="+dir, lazyVariable+"=1")
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for i := 0; i < 40+7*round && lines.Scan(); i++ {
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for lines.Scan() {
		}
		_ = cmd.Wait() // it was killed
		r := verify(t, dir)
		head, err := readHead(dir)
		if err != nil || !r.Sound() {
			t.Fatalf("round %d: %+v, %v", round, r, err)
		}
		last, err := ParseHead(r.Last)
		if err != nil {
			t.Fatal(err)
		}
		l := open(t, dir, 20_000)
		shut(t, l)
		if last.Seq > head.Seq {
			notes++
		}
		n := 0
		for _, path := range files(t, dir) {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			n += bytes.Count(text, []byte(`"kind":"`+KindUnsynced+`"`))
		}
		if n != notes {
			t.Fatalf("round %d: %d records of what was in doubt, want %d", round, n, notes)
		}
	}
	if r := verify(t, dir); !r.Sound() {
		t.Errorf("%+v", r)
	}
}

// A first writer that is killed before its first record was synced leaves a good
// log, too.
func TestKilledAtTheVeryBeginning(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "audit")
	killed(t, open(t, dir, 0))
	noted(t, dir)
	l := open(t, dir, 0)
	idle(l)
	if _, err := l.Append(Entry{Kind: "look"}, false); err != nil {
		t.Fatal(err)
	}
	killed(t, l)
	noted(t, dir)
	l = open(t, dir, 0)
	add(t, l, "next")
	shut(t, l)
	noted(t, dir, "records 1 to 1")
}
