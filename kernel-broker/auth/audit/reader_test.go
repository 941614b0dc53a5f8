// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestHeads(t *testing.T) {
	h := Head{7, strings.Repeat("ab", 32)}
	if got, err := ParseHead(h.String() + "\n"); err != nil || got != h {
		t.Errorf("%+v, %v", got, err)
	}
	for _, text := range []string{"", "7", "7:", "7:ab", "x:" + h.Digest, "07:" + h.Digest, "7 :" + h.Digest, "7:" + strings.ToUpper(h.Digest), "-1:" + h.Digest, "7:" + h.Digest + ":"} {
		if got, err := ParseHead(text); err == nil {
			t.Errorf("%q is %+v", text, got)
		}
	}
}

// A reader of any file ends, and finds no record where there is none.
func FuzzVerify(f *testing.F) {
	dir := write(f, 3)
	text, err := os.ReadFile(files(f, dir)[0])
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte("\n\n{}\n"))
	f.Add(append(bytes.Repeat([]byte("x"), maxLine+5), text...))
	f.Fuzz(func(t *testing.T, text []byte) {
		path := filepath.Join(t.TempDir(), nameOf(1))
		if err := os.WriteFile(path, text, 0o640); err != nil {
			t.Fatal(err)
		}
		r, err := Verify(Check{Path: path})
		if err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		if int(r.Records) > bytes.Count(text, []byte("\n")) {
			t.Errorf("%d records in %q", r.Records, text)
		}
	})
}

// A writer gets over whatever it finds, and what it writes is found.
func FuzzResume(f *testing.F) {
	f.Add([]byte("\n\n{}\n"))
	f.Add([]byte(`{"seq":1,"prev":"`))
	f.Fuzz(func(t *testing.T, text []byte) {
		path := filepath.Join(t.TempDir(), nameOf(1))
		if err := os.WriteFile(path, text, 0o640); err != nil {
			t.Fatal(err)
		}
		r, err := Verify(Check{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		l, err := Open(Options{Dir: filepath.Dir(path), Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Append(Entry{Kind: "after"}, true); err != nil {
			t.Error(err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		again, err := Verify(Check{Path: filepath.Dir(path)})
		if err != nil || again.Records <= r.Records {
			t.Errorf("%+v, then %+v, %v", r, again, err)
		}
	})
}
