// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if spec := os.Getenv(victimVariable); spec != "" {
		beVictim(spec)
	}
	if spec := os.Getenv(workerVariable); spec != "" {
		beWorker(spec)
	}
	if root := os.Getenv(smallDisk); root != "" {
		mountSmall(root)
	}
	goleak.VerifyTestMain(m)
}

// world is a store, and steps that write down when they are done.
type world struct {
	t     *testing.T
	store Store

	mu     sync.Mutex
	worked []string
	events []Event
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return &world{t: t, store: Store{Dir: quickDir(t)}}
}

// quickDir is in memory where there is such a place: bringing things to a disk
// is most of what these tests would do, and no test takes the power away.
func quickDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "graph-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// step concatenates its input and what it needs.
func (w *world) step(name, input string, needs ...string) Step {
	s := Step{Name: name, Inputs: map[string]string{"text": input}, Needs: map[string]string{}}
	for _, need := range needs {
		s.Needs[need] = need
	}
	s.Run = func(_ context.Context, work *Work) error {
		w.mu.Lock()
		w.worked = append(w.worked, name)
		w.mu.Unlock()
		work.Say("this is %s", name)
		return write(filepath.Join(work.Dir, "text"), expected(input, needs, func(need string) string {
			return read(w.t, filepath.Join(work.Need(need), "text"))
		}))
	}
	return s
}

func expected(input string, needs []string, of func(string) string) string {
	text := input
	for _, need := range slices.Sorted(slices.Values(needs)) {
		text += "(" + of(need) + ")"
	}
	return text
}

func (w *world) graph(steps ...Step) *Graph {
	w.t.Helper()
	g, err := New(steps...)
	if err != nil {
		w.t.Fatal(err)
	}
	return g
}

func (w *world) runner() *Runner {
	return &Runner{Store: w.store, Parallel: 2, Observe: func(e Event) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.events = append(w.events, e)
	}}
}

// run runs a graph and returns the steps that were worked on, sorted.
func (w *world) run(g *Graph, targets ...string) (results map[string]Result, worked string, err error) {
	w.t.Helper()
	w.mu.Lock()
	w.worked, w.events = nil, nil
	w.mu.Unlock()
	results, err = w.runner().Run(w.t.Context(), "test", g, targets...)
	return results, w.did(), err
}

func (w *world) did() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(slices.Sorted(slices.Values(w.worked)), " ")
}

func (w *world) status() Status {
	w.t.Helper()
	status, err := w.store.Status("test", "")
	if err != nil {
		w.t.Fatal(err)
	}
	return status
}

// states of the steps in the newest journal.
func (w *world) states() string {
	w.t.Helper()
	var words []string
	for _, step := range w.status().Steps {
		word := step.Name + ":" + string(step.State)
		if step.Cached {
			word += "(cached)"
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

// until waits for a condition.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for: %s", what)
		}
	}
}

// whole checks that every folder which counts as a result is one.
func whole(t *testing.T, store Store) {
	t.Helper()
	dirs, err := filepath.Glob(filepath.Join(store.Dir, "steps", "*", "*", "result"))
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range dirs {
		key := filepath.Dir(dir)
		result, err := store.Find(filepath.Base(filepath.Dir(key)), filepath.Base(key))
		if err != nil {
			t.Error(err)
			continue
		}
		if digest, err := TreeDigest(result.Files()); err != nil || digest != result.Digest {
			t.Errorf("%s: digest %s, %v; its step.json says %s", dir, digest, err, result.Digest)
		}
	}
}

func write(path, text string) error { return os.WriteFile(path, []byte(text), 0o644) }

func read(t *testing.T, path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		t.Error(err)
	}
	return string(text)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// waitFor is for steps that a test holds up: it returns when the file is there.
func waitFor(ctx context.Context, path string) error {
	for !exists(path) {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
	return nil
}

var errBroken = fmt.Errorf("it is broken")
