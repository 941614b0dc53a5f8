// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// A fuzzed store has one spot with whatever stands in it.
func spotWith(t *testing.T, name string, text []byte) (Store, spot) {
	t.Helper()
	store := Store{Dir: t.TempDir()}
	place := store.spot("kind", "key")
	path := place.path(name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return store, place
}

// FuzzResult: results lie in a folder that several machines write to. One is taken
// for what its place says or not at all.
func FuzzResult(f *testing.F) {
	f.Add([]byte(`{"kind":"kind","key":"key","digest":"sha256:ab","inputs":{"a":"b"},"began":"2026-11-20T12:00:00Z"}`))
	f.Add([]byte(`{"kind":"kind","key":"../key","digest":"x"}`))
	f.Add([]byte(`{"KIND":"kind","key":"key","digest":"x","ended":null}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		store, _ := spotWith(t, "result/step.json", text)
		got, err := store.Find("kind", "key")
		if err != nil {
			if !strings.Contains(err.Error(), "kind") {
				t.Errorf("%v does not say of which step", err)
			}
			return
		}
		if got.Kind != "kind" || got.Key != "key" || got.Digest == "" || !strings.HasPrefix(got.Files(), store.Dir+"/") {
			t.Errorf("taken: %+v", got)
		}
		again, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		store, _ = spotWith(t, "result/step.json", again)
		if back, err := store.Find("kind", "key"); err != nil || back.Digest != got.Digest || !reflect.DeepEqual(back.Inputs, got.Inputs) {
			t.Errorf("%+v came back as %+v, %v", got, back, err)
		}
	})
}

// FuzzFailure is why another process could not do a step: what it left is an error
// that can be told, and what the same process left before is none.
func FuzzFailure(f *testing.F) {
	f.Add([]byte(`{"error":"make: no","full":"/x","detail":{"kernel":"a"},"at":"2026-11-20T12:00:00Z"}`), []byte("line\nlast\n"))
	f.Add([]byte(`{"error":""}`), []byte("\x00\xff"))
	f.Add([]byte(`null`), []byte(nil))
	f.Fuzz(func(t *testing.T, text, log []byte) {
		_, place := spotWith(t, "failure.json", text)
		if err := os.WriteFile(place.log(), log, 0o600); err != nil {
			t.Fatal(err)
		}
		if place.failedSince(string(text), "step") != nil {
			t.Error("what was known before is new")
		}
		failure := place.failedSince("what was before", "step")
		if failure == nil {
			return
		}
		if said := failure.Error(); !strings.Contains(said, `step "step"`) || strings.Count(said, "\n") > tailLines+strings.Count(failure.Err.Error(), "\n")+2 {
			t.Errorf("%d lines: %q", strings.Count(said, "\n"), said)
		}
		if len(failure.Detail) > 0 && !json.Valid(failure.Detail) {
			t.Errorf("detail %q", failure.Detail)
		}
	})
}

// A key that leads out of the store is none.
func TestTaskWithAPathForAKey(t *testing.T) {
	root := t.TempDir()
	path := filepath.Join(root, "task.json")
	if err := os.WriteFile(path, []byte(`{"step":"a","key":"../../..","inputs":{}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	g, err := New(Step{Name: "a", Run: func(context.Context, *Work) error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	if err := (Store{Dir: filepath.Join(root, "store")}).Work(t.Context(), path, g); err == nil || !strings.Contains(err.Error(), "is no key") {
		t.Errorf("error is %v", err)
	}
	if left, err := os.ReadDir(root); err != nil || len(left) != 1 {
		t.Errorf("%v beside the task, %v", left, err)
	}
}

// FuzzTask is what another machine is asked to do: a step of its own graph with
// just the inputs that it has there, or nothing.
func FuzzTask(f *testing.F) {
	f.Add([]byte(`{"step":"a","key":"` + strings.Repeat("01", 32) + `","inputs":{"input":"x"},"needs":{}}`))
	f.Add([]byte(`{"step":"a","key":"../../../..","inputs":{"input":"x"}}`))
	f.Add([]byte(`{"step":"a","inputs":{"input":"y"}}`))
	f.Add([]byte(`{"step":"b","needs":{"a":{"kind":"a","key":"0123"}}}`))
	f.Add([]byte(`{"step":"","key":""}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		root := t.TempDir()
		worked := errors.New("it worked")
		run := func(context.Context, *Work) error { return worked }
		g, err := New(Step{Name: "a", Inputs: map[string]string{"input": "x"}, Run: run}, Step{Name: "b", Needs: map[string]string{"a": "a"}, Run: run})
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(root, "task.json")
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		store := Store{Dir: filepath.Join(root, "store", "inner")}
		err = store.Work(t.Context(), path, g)
		if err == nil {
			t.Fatal("a step that fails is done")
		}
		if did := errors.Is(err, worked); did {
			var file taskFile
			if json.Unmarshal(text, &file) != nil || file.Step != "a" || file.Inputs["input"] != "x" {
				t.Errorf("%q was worked on", text)
			}
		}
		for _, folder := range []string{root, filepath.Join(root, "store")} {
			entries, err := os.ReadDir(folder)
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Fatal(err)
			}
			for _, e := range entries {
				if name := e.Name(); name != "store" && name != "task.json" && name != "inner" {
					t.Errorf("%q was made outside of the store by %q", name, text)
				}
			}
		}
	})
}
