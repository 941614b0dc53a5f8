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

func TestAnswersAreAskedForOnce(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "deep")
	asked := 0
	ask := func(context.Context, []string) (Answer, error) {
		asked++
		return Answer{Works: true, Text: int64(asked)}, nil
	}
	for _, c := range []struct {
		folder string
		off    []string
		want   int64
	}{
		{folder, []string{"A", "B"}, 1}, {folder, []string{"B", "A"}, 1}, {folder, []string{"C"}, 2}, {folder, nil, 3},
		{folder, []string{"C"}, 2}, {folder + "2", []string{"C"}, 4},
	} {
		if got, err := Answers(c.folder).Ask(ask)(t.Context(), c.off); err != nil || got.Text != c.want {
			t.Errorf("%s %v: %+v, %v, want %d", c.folder, c.off, got, err, c.want)
		}
	}
}

func TestAnswersSayWhichIsBroken(t *testing.T) {
	folder := t.TempDir()
	ask := func(context.Context, []string) (Answer, error) { return Answer{Works: true}, nil }
	if _, err := Answers(folder).Ask(ask)(t.Context(), []string{"A"}); err != nil {
		t.Fatal(err)
	}
	paths, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil || len(paths) != 1 {
		t.Fatal(paths, err)
	}
	if err := os.WriteFile(paths[0], []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Answers(folder).Ask(ask)(t.Context(), []string{"A"}); err == nil || !strings.Contains(err.Error(), paths[0]) {
		t.Errorf("error %v", err)
	}
}
