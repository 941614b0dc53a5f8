// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

func open(t testing.TB, dir string, maxBytes int64) *Log {
	t.Helper()
	l, err := Open(Options{Dir: dir, MaxBytes: maxBytes, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func add(t testing.TB, l *Log, objects ...string) {
	t.Helper()
	yes, uid := true, uint32(20001)
	for _, object := range objects {
		if _, err := l.Append(Entry{Kind: "decision", Who: "alice", UID: &uid, Action: "use", Object: object, Allowed: &yes}, true); err != nil {
			t.Fatal(err)
		}
	}
}

func shut(t testing.TB, l *Log) {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// write makes a log of n records in files of a few records each.
func write(t testing.TB, n int) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "audit")
	l := open(t, dir, 1000)
	for i := range n {
		add(t, l, fmt.Sprint("profile", i))
	}
	shut(t, l)
	return dir
}

func verify(t testing.TB, dir string) Report {
	t.Helper()
	r, err := Verify(Check{Path: dir})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// found fails unless a problem has the words.
func found(t testing.TB, r Report, words string) {
	t.Helper()
	if !slices.ContainsFunc(r.Problems, func(p Problem) bool { return strings.Contains(p.String(), words) }) {
		t.Errorf("no problem with %q in %v", words, r.Problems)
	}
}

func files(t testing.TB, dir string) []string {
	t.Helper()
	paths, err := logFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

func change(t testing.TB, path string, change func([]byte) []byte) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, change(text), 0o640); err != nil {
		t.Fatal(err)
	}
}

func TestASoundLog(t *testing.T) {
	dir := write(t, 20)
	r := verify(t, dir)
	if !r.Sound() || r.Files < 3 || r.First != 1 || r.Records < 20 || len(r.Notes) != 0 {
		t.Errorf("%+v", r)
	}
	// Another writer goes on where the first one ended, in the same chain.
	l := open(t, dir, 1000)
	add(t, l, "more")
	head := l.Head()
	shut(t, l)
	r2, err := Verify(Check{Path: dir, Until: &head})
	if err != nil || !r2.Sound() || r2.Records != r.Records+1 || r2.Last != head.String() {
		t.Errorf("%+v, %v", r2, err)
	}
	one, err := Verify(Check{Path: files(t, dir)[1]})
	if err != nil || !one.Sound() || len(one.Notes) != 1 {
		t.Errorf("one file: %+v, %v", one, err)
	}
}

func TestWhatIsFound(t *testing.T) {
	lines := func(text []byte) [][]byte { return bytes.SplitAfter(text, []byte("\n")) }
	for what, c := range map[string]struct {
		tamper func(t *testing.T, dir string, paths []string)
		words  string
	}{
		"a changed word": {func(t *testing.T, _ string, paths []string) {
			change(t, paths[1], func(b []byte) []byte { return bytes.Replace(b, []byte(`"allowed":true`), []byte(`"allowed":null`), 1) })
		}, "was changed after it was written"},
		"a changed time": {func(t *testing.T, _ string, paths []string) {
			change(t, paths[0], func(b []byte) []byte { return bytes.Replace(b, []byte(`"at":"20`), []byte(`"at":"19`), 1) })
		}, "record 1 was changed"},
		"the last line changed": {func(t *testing.T, _ string, paths []string) {
			change(t, paths[len(paths)-1], func(b []byte) []byte {
				i := bytes.LastIndex(b, []byte("alice"))
				return slices.Concat(b[:i], []byte("bobby"), b[i+5:])
			})
		}, "the head knows it with another digest"},
		"a line taken out": {func(t *testing.T, _ string, paths []string) {
			change(t, paths[0], func(b []byte) []byte { l := lines(b); return bytes.Join(slices.Delete(l, 1, 2), nil) })
		}, "audit-000000000001.log:2: records 2 to 2 are missing before this one"},
		"two lines swapped": {func(t *testing.T, _ string, paths []string) {
			change(t, paths[0], func(b []byte) []byte { l := lines(b); l[0], l[1] = l[1], l[0]; return bytes.Join(l, nil) })
		}, "stands behind record 2"},
		"a line twice": {func(t *testing.T, _ string, paths []string) {
			change(t, paths[0], func(b []byte) []byte { l := lines(b); return bytes.Join(slices.Insert(l, 1, l[0]), nil) })
		}, "record 1 stands behind record 1"},
		"an empty line at the end": {func(t *testing.T, _ string, paths []string) {
			change(t, paths[len(paths)-1], func(b []byte) []byte { return append(b, '\n') })
		}, "1 lines at its end are no records"},
		"the end cut off": {func(t *testing.T, _ string, paths []string) {
			change(t, paths[len(paths)-1], func(b []byte) []byte { l := lines(b); return bytes.Join(l[:len(l)-2], nil) })
		}, "its end was cut off"},
		"the last file emptied": {func(t *testing.T, _ string, paths []string) {
			change(t, paths[len(paths)-1], func([]byte) []byte { return nil })
		}, "its end was cut off"},
		"the last file missing": {func(t *testing.T, _ string, paths []string) { remove(t, paths[len(paths)-1]) }, "its end was cut off"},
		"a file missing":        {func(t *testing.T, _ string, paths []string) { remove(t, paths[1]) }, "are missing before this one"},
		"the first missing":     {func(t *testing.T, _ string, paths []string) { remove(t, paths[0]) }, "records 1 to"},
		"the head missing":      {func(t *testing.T, dir string, _ []string) { remove(t, filepath.Join(dir, headName)) }, "there is no head"},
		"garbage for a head": {func(t *testing.T, dir string, _ []string) {
			change(t, filepath.Join(dir, headName), func([]byte) []byte { return []byte("x") })
		}, "is not NUMBER:DIGEST"},
		"a line of garbage": {func(t *testing.T, _ string, paths []string) {
			change(t, paths[0], func(b []byte) []byte { return append([]byte("garbage\n"), b...) })
		}, "are no records"},
		"a line in the place of another": {func(t *testing.T, _ string, paths []string) {
			change(t, paths[0], func(b []byte) []byte { l := lines(b); l[1] = []byte("garbage\n"); return bytes.Join(l, nil) })
		}, "are no records"},
		"a file renamed": {func(t *testing.T, dir string, paths []string) {
			if err := os.Rename(paths[len(paths)-1], filepath.Join(dir, nameOf(900))); err != nil {
				t.Fatal(err)
			}
		}, "the file is named for record 900"},
		"a tail that was torn by hand": {func(t *testing.T, _ string, paths []string) {
			change(t, paths[len(paths)-1], func(b []byte) []byte { return b[:len(b)-20] })
		}, "its end was cut off"},
	} {
		t.Run(what, func(t *testing.T) {
			dir := write(t, 20)
			c.tamper(t, dir, files(t, dir))
			found(t, verify(t, dir), c.words)
		})
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

// A writer that begins on a log whose end is gone says so in the log itself, so
// that writing on does not cover it up.
func TestWritingOnCoversNothingUp(t *testing.T) {
	dir := write(t, 20)
	paths := files(t, dir)
	change(t, paths[len(paths)-1], func(b []byte) []byte {
		l := bytes.SplitAfter(b, []byte("\n"))
		return bytes.Join(l[:len(l)-2], nil)
	})
	l := open(t, dir, 1000)
	add(t, l, "later")
	shut(t, l)
	found(t, verify(t, dir), "the last ones are gone")
}

// A head that is longer than the one that is written over it is whole again once its record is on disk.
func TestALongHeadIsRepaired(t *testing.T) {
	for name, text := range map[string]string{
		"another log's": "12345:" + strings.Repeat("0", 64) + "\n",
		"damaged":       strings.Repeat("x", 500),
	} {
		dir := write(t, 20)
		change(t, filepath.Join(dir, headName), func([]byte) []byte { return []byte(text) })
		l := open(t, dir, 0)
		last := l.Head()
		shut(t, l)
		if head, err := readHead(dir); err != nil || head == nil || *head != last {
			t.Errorf("%s: the head is %v, %v, want %v", name, head, err, last)
		}
		again := open(t, dir, 0)
		if got := again.Head(); got != last {
			t.Errorf("%s: the next writer adds records up to %d, the last was %d", name, got.Seq, last.Seq)
		}
		shut(t, again)
	}
}

// A head that was kept elsewhere shows that files and head were both rewritten.
func TestAHeadKeptElsewhere(t *testing.T) {
	dir := write(t, 20)
	kept, err := readHead(dir)
	if err != nil {
		t.Fatal(err)
	}
	other := write(t, 40)
	if r := verify(t, other); !r.Sound() {
		t.Fatal(r.Problems)
	}
	r, err := Verify(Check{Path: other, Until: kept})
	if err != nil {
		t.Fatal(err)
	}
	found(t, r, "is not in it")
}

func TestFilesMovedAway(t *testing.T) {
	dir := write(t, 20)
	paths := files(t, dir)
	first, err := Verify(Check{Path: paths[0]})
	if err != nil {
		t.Fatal(err)
	}
	after, err := ParseHead(first.Last)
	if err != nil {
		t.Fatal(err)
	}
	remove(t, paths[0])
	if r, err := Verify(Check{Path: dir, After: &after}); err != nil || !r.Sound() {
		t.Errorf("%+v, %v", r, err)
	}
	after.Digest = genesis
	if r, err := Verify(Check{Path: dir, After: &after}); err != nil || r.Sound() {
		t.Errorf("behind another record: %+v, %v", r, err)
	}
}

// However far a line got when its writer was killed, the log is sound, and says
// what happened; and so it is when the next writer is killed as it mends that.
func TestTornLines(t *testing.T) {
	whole := write(t, 3)
	path := files(t, whole)[0]
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	last := text[bytes.LastIndexByte(text[:len(text)-1], '\n')+1:]
	for cut := 1; cut < len(last); cut += 1 + len(last)/40 {
		for _, mended := range []string{"", " ", " tor", " torn", " torn\n"} {
			dir := t.TempDir()
			before := text[:len(text)-len(last)]
			torn := append(slices.Clone(before), last[:cut]...)
			if err := os.WriteFile(filepath.Join(dir, nameOf(1)), append(torn, mended...), 0o640); err != nil {
				t.Fatal(err)
			}
			head := tailHead(t, before)
			if err := os.WriteFile(filepath.Join(dir, headName), []byte(head), 0o640); err != nil {
				t.Fatal(err)
			}
			if r := verify(t, dir); !r.Sound() || len(r.Notes) != 1 {
				t.Fatalf("cut at %d%q, before: %+v", cut, mended, r)
			}
			l := open(t, dir, 1<<20)
			add(t, l, "next", "and next")
			shut(t, l)
			if r := verify(t, dir); !r.Sound() || r.Records != 4 || len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "torn") {
				t.Fatalf("cut at %d%q, behind: %+v", cut, mended, r)
			}
		}
	}
}

func tailHead(t *testing.T, text []byte) string {
	t.Helper()
	lines := bytes.Split(bytes.TrimSuffix(text, []byte("\n")), []byte("\n"))
	line := lines[len(lines)-1]
	r, err := decode(line)
	if err != nil {
		t.Fatal(err)
	}
	return Head{r.Seq, digest(line)}.String() + "\n"
}

func TestManyWriteAtOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "audit")
	l := open(t, dir, 2000)
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for range 25 {
				if _, err := l.Append(Entry{Kind: "x", Object: strings.Repeat("y", i)}, i%2 == 0); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	shut(t, l)
	if r := verify(t, dir); !r.Sound() || r.Records < 200 {
		t.Errorf("%+v", r)
	}
}

// What nobody waits for is on disk, and in the head, soon all the same.
func TestLazyRecords(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "audit")
	l := open(t, dir, 0)
	defer shut(t, l)
	if _, err := l.Append(Entry{Kind: "look"}, false); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if head, err := readHead(dir); err == nil && head != nil && head.Seq == 1 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the head never came")
		}
	}
}

func TestOneWriter(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "audit")
	l := open(t, dir, 0)
	if _, err := Open(Options{Dir: dir, Log: slog.New(slog.DiscardHandler)}); !errors.Is(err, kb.ErrFailedPrecondition) {
		t.Errorf("a second writer: %v", err)
	}
	shut(t, l)
	shut(t, open(t, dir, 0))
	if _, err := l.Append(Entry{Kind: "late"}, true); !errors.Is(err, kb.ErrUnavailable) {
		t.Errorf("after the end: %v", err)
	}
}

// Hostile words stay one line of valid JSON.
func TestHostileWords(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "audit")
	l := open(t, dir, 0)
	for _, words := range []string{"a\nb", `"},{"seq":9`, "\xff\xfe", strings.Repeat("é", 5000), "\x00", "\u2028"} {
		if _, err := l.Append(Entry{Kind: "x", Who: words, Object: words, Reason: words}, true); err != nil {
			t.Error(err)
		}
	}
	shut(t, l)
	if r := verify(t, dir); !r.Sound() || r.Records != 6 {
		t.Errorf("%+v", r)
	}
}

// A full disk refuses the record; what follows when there is room again stands
// in a sound log. Of a line that is written in part see full_test.go.
func TestAFullDisk(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "audit")
	l := open(t, dir, 0)
	add(t, l, "one")
	good := l.file
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	l.file = full
	if _, err := l.Append(Entry{Kind: "x"}, true); !errors.Is(err, kb.ErrUnavailable) {
		t.Errorf("on a full disk: %v", err)
	}
	if _, err := l.Health(); err == nil || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("the log is well on a full disk: %v", err)
	}
	l.file = good
	if err := full.Close(); err != nil {
		t.Error(err)
	}
	add(t, l, "two")
	if text, err := l.Health(); err != nil {
		t.Errorf("%q, %v", text, err)
	}
	shut(t, l)
	if r := verify(t, dir); !r.Sound() || r.Records != 2 || len(r.Notes) != 0 {
		t.Errorf("%+v", r)
	}
}

// Whatever is done to the bytes of a log, it shows.
func TestNoChangeIsMissed(t *testing.T) {
	dir := write(t, 8)
	originals := map[string][]byte{}
	for _, path := range files(t, dir) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		originals[path] = text
	}
	paths := files(t, dir)
	rapid.Check(t, func(rt *rapid.T) {
		path := rapid.SampledFrom(paths).Draw(rt, "file")
		text := originals[path]
		i := rapid.IntRange(0, len(text)-1).Draw(rt, "at")
		var changed []byte
		switch rapid.SampledFrom([]string{"flip", "cut", "insert", "truncate"}).Draw(rt, "how") {
		case "flip":
			changed = slices.Clone(text)
			changed[i] ^= byte(rapid.IntRange(1, 255).Draw(rt, "bits"))
		case "cut":
			changed = slices.Delete(slices.Clone(text), i, min(len(text), i+rapid.IntRange(1, 400).Draw(rt, "bytes")))
		case "insert":
			changed = slices.Insert(slices.Clone(text), i, rapid.SliceOfN(rapid.Byte(), 1, 40).Draw(rt, "bytes")...)
		case "truncate":
			changed = text[:i]
		}
		if bytes.Equal(changed, text) {
			return
		}
		if err := os.WriteFile(path, changed, 0o640); err != nil {
			rt.Fatal(err)
		}
		defer func() {
			if err := os.WriteFile(path, text, 0o640); err != nil {
				rt.Fatal(err)
			}
		}()
		r, err := Verify(Check{Path: dir})
		if err != nil || r.Sound() {
			rt.Fatalf("%s: %d bytes became %d: %+v, %v", filepath.Base(path), len(text), len(changed), r, err)
		}
	})
}
