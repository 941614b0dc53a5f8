// SPDX-License-Identifier: Apache-2.0

package slim

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// tempFolder is one per drawn case, since rapid's T has none of its own.
func tempFolder(t *rapid.T) (string, error) {
	folder, err := os.MkdirTemp("", "slim")
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	return folder, err
}

func TestJournalSurvivesAKill(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deep", "journal")
	asked := 0
	ask := func(context.Context, []string) (Answer, error) {
		asked++
		return Answer{Works: true, Text: int64(asked)}, nil
	}
	answer := func(base string, off ...string) Answer {
		t.Helper()
		journal, err := OpenJournal(path, base)
		if err != nil {
			t.Fatal(err)
		}
		defer journal.Close()
		got, err := journal.Ask(ask)(context.Background(), off)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	answer("base", "A", "B")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// A kill in the middle of the next line.
	if err := os.WriteFile(path, append(data, `{"base":"base","off":["C"],"ans`...), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := answer("base", "B", "A"); got.Text != 1 || asked != 1 {
		t.Errorf("asked again after a kill: %+v, %d calls", got, asked)
	}
	answer("base", "C")
	if got := answer("base", "C"); got.Text != 2 || asked != 2 {
		t.Errorf("the line behind a torn one is lost: %+v, %d calls", got, asked)
	}
	if got := answer("another base", "C"); got.Text != 3 {
		t.Errorf("an answer of another base was used: %+v", got)
	}
}

func TestJournalSaysWhereItIsBroken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	if err := os.WriteFile(path, []byte("{\"base\":\"b\"}\nnonsense\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenJournal(path, "b"); err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Fatalf("error %v", err)
	}
}
