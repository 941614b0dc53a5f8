// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bufio"
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

// Killed at any instant of bringing what a killed writer left to disk, also where a
// line was torn, the log is sound, and the next writer goes on in it.
func TestKilledWhileItGoesOn(t *testing.T) {
	for name, torn := range map[string]string{"whole": "", "torn": `{"seq":5,"prev":"`} {
		t.Run(name, func(t *testing.T) {
			dir := behind(t)
			path := files(t, dir)[0]
			change(t, path, func(b []byte) []byte { return append(b, torn...) })
			before := snapshot(t, dir)
			l := open(t, dir, 0)
			if head, err := readHead(dir); err != nil || head.Seq != 4 {
				t.Errorf("what was written is not known to be on disk: %v, %v", head, err)
			}
			idle(l)
			if _, err := l.Append(Entry{Kind: "look"}, false); err != nil {
				t.Fatal(err)
			}
			killed(t, l)
			after := snapshot(t, dir)
			// The head is written first, and then the file grows.
			instants := []map[string][]byte{before}
			file := filepath.Base(path)
			for n := len(before[file]); n <= len(after[file]); n += 1 + len(after[file])/40 {
				state := maps.Clone(after)
				state[file] = after[file][:n]
				instants = append(instants, state)
			}
			instants = append(instants, after)
			for i, state := range instants {
				dir := restore(t, state)
				if r := verify(t, dir); !r.Sound() {
					t.Fatalf("instant %d: %v", i, r.Problems)
				}
				// The next one is killed as well.
				killed(t, open(t, dir, 0))
				l := open(t, dir, 0)
				add(t, l, "next")
				shut(t, l)
				if r := verify(t, dir); !r.Sound() || r.Files != 1 || r.Records < 5 {
					t.Fatalf("instant %d: %+v", i, r)
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
	l, err := Open(Options{Dir: dir, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return fmt.Errorf("the broker does not start: %w", err)
	}
	for _, size := range []uint64{0, 40, 60} {
		if err := limited(size); err != nil {
			return err
		}
		for range 3 {
			if _, err := l.Append(Entry{Kind: "x"}, true); !errors.Is(err, kb.ErrUnavailable) || !errors.Is(err, unix.EFBIG) {
				return fmt.Errorf("%d bytes of room: %w", size, err)
			}
		}
		if text, err := l.Health(); err == nil || !strings.Contains(err.Error(), "refuses changes") {
			return fmt.Errorf("%d bytes of room: the log is %q, %w", size, text, err)
		}
	}
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &before); err != nil {
		return err
	}
	if _, err := l.Append(Entry{Kind: "x"}, true); err != nil {
		return fmt.Errorf("with room: %w", err)
	}
	if _, err := l.Health(); err != nil {
		return err
	}
	return l.Close()
}

// A disk that takes nothing leaves the broker at work, ill and without another
// record, until it does.
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
		if !r.Sound() || r.Records < 5 {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// Writers that are killed with records that nobody waited for leave sound logs, and
// each time the next one brings these records to disk.
func TestKilledLazyWriters(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "audit")
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
		if !r.Sound() {
			t.Fatalf("round %d: %+v", round, r)
		}
		last, err := ParseHead(r.Last)
		if err != nil {
			t.Fatal(err)
		}
		l := open(t, dir, 20_000)
		shut(t, l)
		if now, err := readHead(dir); err != nil || now.Seq < last.Seq || now.Seq > last.Seq+1 {
			t.Fatalf("round %d: the head is %v, %v, the last record was %d", round, now, err, last.Seq)
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
	noted(t, dir)
}

// A record by which an earlier version named such records is a note.
func TestUnsyncedRecordOfAnEarlierVersion(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "audit")
	l := open(t, dir, 0)
	add(t, l, "one")
	if _, err := l.Append(Entry{Kind: KindUnsynced, Reason: "records 1 to 1 were written, and not known to be on the disk when their writer ended"}, true); err != nil {
		t.Fatal(err)
	}
	shut(t, l)
	noted(t, dir, "records 1 to 1 were written")
}

// Torn lines, which an earlier version named in the record behind them, are notes.
func TestTornLinesOfAnEarlierVersion(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "audit")
	l := open(t, dir, 0)
	add(t, l, "one")
	if _, err := l.file.Write([]byte("x torn\n\n")); err != nil {
		t.Fatal(err)
	}
	e := Entry{Kind: KindRecovered, Reason: "2 lines were torn when a writer ended or the disk was full"}
	if _, err := l.write(record{Entry: e, Torn: []any{map[string]any{"bytes": 6}, map[string]any{"bytes": 0}}}); err != nil {
		t.Fatal(err)
	}
	shut(t, l)
	noted(t, dir, "log:2: this line was torn", "log:4: 2 lines were torn")
}

// A disk that fails as a broker starts leaves it at work, and the log goes on as
// after any sync that failed.
func TestAFailedSyncAtTheStart(t *testing.T) {
	l, now := clocked(t, behind(t), 0)
	l.synced = 2
	l.file = &failing{file: l.file, fails: 1}
	if err := l.sync(l.last.Seq); !errors.Is(err, unix.EIO) {
		t.Fatal(err)
	}
	if _, err := l.Health(); err == nil || !strings.Contains(err.Error(), "records 3 to 4") {
		t.Errorf("the log is well: %v", err)
	}
	*now = now.Add(2 * resumePause)
	add(t, l, "next")
	shut(t, l)
	found(t, verify(t, l.o.Dir), "records 3 to 4 may not be on disk")
}
