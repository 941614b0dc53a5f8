// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// Who reads how far runs are holds each one's lock for a moment: a run that begins
// just then waits for it.
func TestRunBeginsUnderReaders(t *testing.T) {
	store := Store{Dir: quickDir(t)}
	g, err := New(Step{Name: "a", Effect: true, Run: func(context.Context, *Work) error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	var ended atomic.Bool
	var readers sync.WaitGroup
	for range 3 {
		readers.Go(func() {
			for !ended.Load() {
				_, _ = store.Status("test", "") // there may be none yet
			}
		})
	}
	for range 500 {
		if _, err := (&Runner{Store: store}).Run(t.Context(), "test", g); err != nil {
			t.Error(err)
			break
		}
	}
	ended.Store(true)
	readers.Wait()
}

// A run that was killed before it wrote a status, and one of a program that
// wrote another file, hide nothing of the one before.
func TestRunsWithoutAStatus(t *testing.T) {
	w := newWorld(t)
	if _, _, err := w.run(w.graph(w.step("a", "a"))); err != nil {
		t.Fatal(err)
	}
	good := w.status()
	for _, id := range []string{"30000101T000000.000000000Z-ABCDEF", "19990101T000000.000000000Z-ABCDEF"} {
		if err := os.MkdirAll(w.store.builds("test", id), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if got := w.status(); got.ID != good.ID || got.State != Done {
		t.Errorf("%+v", got)
	}
	if err := os.MkdirAll(w.store.builds("other", "30000101T000000.000000000Z-ABCDEF"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := w.store.Status("other", ""); !errors.Is(err, kb.ErrNotFound) {
		t.Errorf("only one without: %v", err)
	}
	if _, err := w.store.Status("test", "30000101T000000.000000000Z-ABCDEF"); !os.IsNotExist(err) && !strings.Contains(err.Error(), "no such file") {
		t.Errorf("asked for the one without: %v", err)
	}
}

func TestStatusRefuses(t *testing.T) {
	w := newWorld(t)
	if _, _, err := w.run(w.graph(w.step("a", "a"))); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(w.store.builds("test", w.status().ID), "status.json")
	for words, text := range map[string]string{
		"format 1, this program reads 2": `{"format":1}`,
		"unexpected end of JSON":         `{"format":`,
	} {
		if err := write(path, text); err != nil {
			t.Fatal(err)
		}
		if _, err := w.store.Status("test", ""); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%v, want %q", err, words)
		}
	}
}

// FuzzStatus: a dead run is never said to go on, whatever its file says.
func FuzzStatus(f *testing.F) {
	f.Add([]byte(`{"format":2,"name":"x","state":"running","steps":[{"name":"a","state":"queued"},{"name":"b","state":"done"}]}`))
	f.Add([]byte(`{"format":2,"state":"","steps":[{}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		dir := t.TempDir()
		if err := write(filepath.Join(dir, "status.json"), string(text)); err != nil {
			t.Fatal(err)
		}
		status, err := readStatus(dir)
		if err != nil {
			return
		}
		if !status.State.Ended() {
			t.Errorf("a dead run is %q", status.State)
		}
		for _, step := range status.Steps {
			if step.State == Running || step.State == Following || step.State == Queued {
				t.Errorf("a dead step is %q", step.State)
			}
		}
		if _, err := json.Marshal(status); err != nil {
			t.Error(err)
		}
	})
}
