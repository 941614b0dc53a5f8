// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// someJournal is that of a run with one step.
func someJournal(t testing.TB) []byte {
	t.Helper()
	w := &world{store: Store{Dir: t.TempDir()}}
	g, err := New(w.step("a", "a"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.runner().Run(t.Context(), "test", g); err != nil {
		t.Fatal(err)
	}
	paths, err := filepath.Glob(filepath.Join(w.store.Dir, "builds/test/*/journal"))
	if err != nil || len(paths) != 1 {
		t.Fatalf("%v, %v", paths, err)
	}
	text, err := os.ReadFile(paths[0])
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// A killed process may leave any beginning of its journal.
func TestEveryBeginningCanBeRead(t *testing.T) {
	text := someJournal(t)
	first := bytes.IndexByte(text, '\n')
	for end := range text {
		status, err := ReadJournal(text[:end])
		if (err == nil) != (end > first) {
			t.Fatalf("%d bytes: %v", end, err)
		}
		if err == nil && (status.Name != "test" || len(status.Steps) != 1 || status.State.Ended()) {
			t.Fatalf("%d bytes: %+v", end, status)
		}
	}
	if status, err := ReadJournal(text); err != nil || status.State != Done {
		t.Errorf("%+v, %v", status, err)
	}
}

func TestReadJournalRefuses(t *testing.T) {
	head := `{"at":"2026-11-20T12:00:00Z","head":{"format":1,"name":"x","id":"1","where":"local","host":"h","pid":1,"steps":["a"]}}` + "\n"
	for words, text := range map[string]string{
		"no line is complete":               "{",
		"line 1: the head is the first":     `{"at":"2026-11-20T12:00:00Z","step":"a","state":"done"}` + "\n",
		"line 2: the head is the first":     head + head,
		"line 1: format 2":                  strings.Replace(head, `"format":1`, `"format":2`, 1),
		`line 2: unknown step "b"`:          head + `{"at":"2026-11-20T12:00:00Z","step":"b","state":"done"}` + "\n",
		`line 2: unknown state "great"`:     head + `{"at":"2026-11-20T12:00:00Z","step":"a","state":"great"}` + "\n",
		`line 2: unknown state "killed"`:    head + `{"at":"2026-11-20T12:00:00Z","step":"a","state":"killed"}` + "\n",
		`line 2: json: unknown field "more`: head + `{"at":"2026-11-20T12:00:00Z","more":1}` + "\n",
		"line 2: more than one record":      head + `{"at":"2026-11-20T12:00:00Z","state":"done"} {}` + "\n",
		"line 2: less than none":            head + `{"at":"2026-11-20T12:00:00Z","step":"a","state":"running","done":-1}` + "\n",
	} {
		if _, err := ReadJournal([]byte(text)); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%v, want %q", err, words)
		}
	}
}

func FuzzReadJournal(f *testing.F) {
	text := someJournal(f)
	f.Add(text)
	f.Add(text[:len(text)/2])
	f.Add([]byte(`{"head":{"format":1,"steps":["a","a",""]}}` + "\n" + `{"step":"","state":"done"}` + "\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		status, err := ReadJournal(text)
		if err != nil {
			return
		}
		status.bury()
		if !status.State.Ended() {
			t.Errorf("a dead run is %q", status.State)
		}
		for _, step := range status.Steps {
			if step.State == Running || step.State == "" {
				t.Errorf("a dead step is %q", step.State)
			}
		}
		// What was read is a beginning of a longer journal.
		if end := bytes.LastIndexByte(text, '\n'); end >= 0 {
			if _, err := ReadJournal(text[:end+1]); err != nil {
				t.Errorf("without its torn end: %v", err)
			}
		}
	})
}
