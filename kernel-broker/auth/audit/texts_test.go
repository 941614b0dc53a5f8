// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// However long and strange the texts are that callers write, a record is short,
// and plain to read for people and for programs that show it.
func TestRecordsAreShort(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "audit")
	l := open(t, dir, 0)
	for _, words := range []string{"<", ">", "&", `"`, `\`, "‹", "é", "\x00", "\xff", "\u2028", "\x1b[2J", "a b"} {
		many := strings.Repeat(words, 4000)
		before := len(read(t, dir))
		e := Entry{Kind: "x", Who: many, By: many, From: many, Action: many, Object: many, Via: many, Reason: many, Stated: many, Outcome: many}
		if _, err := l.Append(e, true); err != nil {
			t.Fatal(err)
		}
		line := read(t, dir)[before:]
		if len(line) > 5000 {
			t.Errorf("%q: a record has %d bytes", words, len(line))
		}
		if i := bytes.IndexFunc(line, func(c rune) bool { return c != '\n' && (c < ' ' || c > '~') }); i >= 0 {
			t.Errorf("%q: byte %q in a record", words, line[i])
		}
		if words == "<" && !bytes.Contains(line, []byte("<<<")) {
			t.Errorf("%q is written as something else: %s", words, line)
		}
	}
	shut(t, l)
	if r := verify(t, dir); !r.Sound() {
		t.Error(r.Problems)
	}
}

func read(t *testing.T, dir string) []byte {
	t.Helper()
	text, err := os.ReadFile(files(t, dir)[0])
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// Records of an earlier version escaped what HTML escapes, and had other
// characters than ASCII. The digests are over their bytes as they are.
func TestOldRecordsAreSound(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "audit")
	if err := os.MkdirAll(dir, 0o750); err != nil {
		t.Fatal(err)
	}
	old := []byte(`{"seq":1,"prev":"` + genesis + `","at":"2026-11-01T00:00:00Z","kind":"decision","object":"\u003c\u0026é\u2028"}`)
	if err := os.WriteFile(filepath.Join(dir, nameOf(1)), append(old, '\n'), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, headName), []byte(Head{1, digest(old)}.String()+"\n"), 0o640); err != nil {
		t.Fatal(err)
	}
	l := open(t, dir, 0)
	add(t, l, "a<b")
	shut(t, l)
	if r := verify(t, dir); !r.Sound() || r.Records != 2 || r.Begin.Before(time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("%+v", r)
	}
}
