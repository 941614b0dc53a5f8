// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/filelock"
)

func TestNewRefuses(t *testing.T) {
	run := func(context.Context, *Work) error { return nil }
	for words, steps := range map[string][]Step{
		`step "A" of kind "A": use lower-case`:               {{Name: "A", Run: run}},
		`step "a" of kind "../b"`:                            {{Name: "a", Kind: "../b", Run: run}},
		`step "a" is there twice`:                            {{Name: "a", Run: run}, {Name: "a", Run: run}},
		`step "a" does nothing`:                              {{Name: "a"}},
		`step "a" needs "b", which does not stand before it`: {{Name: "a", Run: run, Needs: map[string]string{"x": "b"}}, {Name: "b", Run: run}},
		`step "a" needs "b", which has no result`:            {{Name: "b", Run: run, Effect: true}, {Name: "a", Run: run, Needs: map[string]string{"x": "b"}}},
	} {
		if _, err := New(steps...); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%v, want %q", err, words)
		}
	}
}

func TestNothingIsDoneTwice(t *testing.T) {
	w := newWorld(t)
	steps := []Step{w.step("a", "a"), w.step("b", "b", "a"), w.step("c", "c", "a", "b"), w.step("z", "z")}
	results, worked, err := w.run(w.graph(steps...))
	if err != nil || worked != "a b c z" {
		t.Fatalf("worked on %q, %v", worked, err)
	}
	if text := read(t, filepath.Join(results["c"].Files(), "text")); text != "c(a)(b(a))" {
		t.Errorf("c is %q", text)
	}
	whole(t, w.store)
	again, worked, err := w.run(w.graph(steps...))
	if err != nil || worked != "" || again["c"].Digest != results["c"].Digest {
		t.Errorf("the second time: worked on %q, %v", worked, err)
	}
	if got := w.states(); got != "a:done(cached) b:done(cached) c:done(cached) z:done(cached)" {
		t.Errorf("journal: %s", got)
	}
	if _, worked, err := w.run(w.graph(w.step("a", "a"), w.step("b", "other", "a"), w.step("y", "y", "b")), "b"); err != nil || worked != "b" {
		t.Errorf("another input, one target: worked on %q, %v", worked, err)
	}
}

// A step that comes out as before stops the change there, as keys hold the
// digests of results.
func TestSameResultSameKey(t *testing.T) {
	w := newWorld(t)
	rounded := func(input string) Step {
		s := w.step("round", input)
		s.Run = func(_ context.Context, work *Work) error { return write(filepath.Join(work.Dir, "text"), input[:1]) }
		return s
	}
	if _, _, err := w.run(w.graph(rounded("17"), w.step("after", "x", "round"))); err != nil {
		t.Fatal(err)
	}
	if _, worked, err := w.run(w.graph(rounded("18"), w.step("after", "x", "round"))); err != nil || worked != "" {
		t.Errorf("worked on %q, %v", worked, err)
	}
	if got := w.states(); got != "round:done after:done(cached)" {
		t.Errorf("journal: %s", got)
	}
}

func TestKindsAreSharedByNames(t *testing.T) {
	w := newWorld(t)
	one, two := w.step("one", "x"), w.step("two", "x")
	one.Kind, two.Kind = "same", "same"
	results, worked, err := w.run(w.graph(one, two))
	if err != nil || len(strings.Fields(worked)) != 1 || results["one"].Key != results["two"].Key {
		t.Errorf("worked on %q, %v", worked, err)
	}
}

func TestFailureKeepsWhatWasDone(t *testing.T) {
	w := newWorld(t)
	var broken atomic.Bool
	broken.Store(true)
	b := w.step("b", "b", "a")
	good := b.Run
	b.Run = func(ctx context.Context, work *Work) error {
		if broken.Load() {
			work.Say("first line\nlast line")
			return errBroken
		}
		return good(ctx, work)
	}
	g := w.graph(w.step("a", "a"), b, w.step("c", "c", "b"), w.step("d", "d", "a"))
	_, worked, err := w.run(g)
	var failed *StepError
	if !errors.As(err, &failed) || !errors.Is(err, errBroken) || failed.Step != "b" || failed.Tail != "first line\nlast line" || failed.Full != "" {
		t.Fatalf("%v", err)
	}
	if want := "step \"b\": it is broken\nfirst line\nlast line\n(whole log: " + failed.Log + ")"; err.Error() != want {
		t.Errorf("the error is\n%v\nwant\n%s", err, want)
	}
	if !strings.HasPrefix(worked, "a") || strings.Contains(worked, "c") {
		t.Errorf("worked on %q", worked)
	}
	status := w.status()
	if step, _ := status.Step("b"); status.State != Failed || step.State != Failed || !strings.Contains(step.Error, "it is broken") || step.Log != failed.Log {
		t.Errorf("journal: %+v", status)
	}
	if step, _ := status.Step("c"); step.State != Pending {
		t.Errorf("c is %s", step.State)
	}
	broken.Store(false)
	if _, worked, err = w.run(g); err != nil || strings.Contains(worked, "a") || !strings.HasPrefix(worked, "b c") {
		t.Errorf("mended: worked on %q, %v", worked, err)
	}
	whole(t, w.store)
}

func TestStopping(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	b := w.step("b", "b", "a")
	b.Run = func(ctx context.Context, _ *Work) error {
		cancel()
		<-ctx.Done()
		return errBroken // as programs do that were told to end
	}
	g := w.graph(w.step("a", "a"), b, w.step("c", "c", "b"))
	if _, err := w.runner().Run(ctx, "test", g); !errors.Is(err, context.Canceled) || errors.As(err, new(*StepError)) {
		t.Errorf("stopped: %v", err)
	}
	if got := w.states(); got != "a:done b:stopped c:pending" || w.status().State != Stopped {
		t.Errorf("journal: %s", got)
	}
	if _, worked, err := w.run(w.graph(w.step("a", "a"), w.step("b", "b", "a"), w.step("c", "c", "b"))); err != nil || worked != "b c" {
		t.Errorf("again: worked on %q, %v", worked, err)
	}
}

func TestAtMostParallelAtOnce(t *testing.T) {
	w := newWorld(t)
	var now, most atomic.Int32
	var steps []Step
	for _, name := range strings.Fields("a b c d e f") {
		s := w.step(name, name)
		s.Run = func(context.Context, *Work) error {
			if n := now.Add(1); n > most.Load() {
				most.Store(n)
			}
			defer now.Add(-1)
			time.Sleep(20 * time.Millisecond)
			return nil
		}
		steps = append(steps, s)
	}
	if _, _, err := w.run(w.graph(steps...)); err != nil || most.Load() > 2 {
		t.Errorf("%d at once, %v", most.Load(), err)
	}
}

// Two runs of the same thing: one works, the other follows and gets the same.
type detailedError struct{ error }

func (detailedError) Detail() any { return map[string]string{"kernel": "k1"} }

func TestTwoAtOnce(t *testing.T) {
	for name, broken := range map[string]bool{"result": false, "failure": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			gate := filepath.Join(t.TempDir(), "gate")
			slow := w.step("slow", "x")
			good := slow.Run
			slow.Run = func(ctx context.Context, work *Work) error {
				if err := good(ctx, work); err != nil {
					return err
				}
				work.Units(3, 7)
				if err := waitFor(ctx, gate); err != nil {
					return err
				}
				if broken {
					work.Say("the reason")
					return fmt.Errorf("twice: %w", detailedError{errBroken})
				}
				return nil
			}
			g := w.graph(slow)
			var runs sync.WaitGroup
			errs, results := make([]error, 2), make([]map[string]Result, 2)
			for i := range 2 {
				runs.Go(func() { results[i], errs[i] = w.runner().Run(t.Context(), "test", g) })
			}
			until(t, "one that follows and sees how far it is", func() bool {
				w.mu.Lock()
				defer w.mu.Unlock()
				return slices.ContainsFunc(w.events, func(e Event) bool { return e.State == Following && e.Done == 3 && e.Total == 7 })
			})
			if err := write(gate, ""); err != nil {
				t.Fatal(err)
			}
			runs.Wait()
			if w.did() != "slow" {
				t.Errorf("worked on %q", w.did())
			}
			for i := range 2 {
				var failed *StepError
				switch {
				case !broken && (errs[i] != nil || results[i]["slow"].Digest == ""):
					t.Errorf("run %d: %v", i, errs[i])
				case broken && (!errors.As(errs[i], &failed) || !strings.Contains(errs[i].Error(), "it is broken\nthis is slow\nthe reason")):
					t.Errorf("run %d: %v", i, errs[i])
				case broken && string(failed.Detail) != `{"kernel":"k1"}`:
					t.Errorf("run %d: detail %s", i, failed.Detail)
				}
			}
		})
	}
}

// What a step cost is told again by a run that finds it done.
func TestCost(t *testing.T) {
	w := newWorld(t)
	long := w.step("long", "four")
	good := long.Run
	long.Run = func(ctx context.Context, work *Work) error {
		time.Sleep(20 * time.Millisecond)
		return good(ctx, work)
	}
	effect := Step{Name: "effect", Needs: map[string]string{"long": "long"}, Effect: true, Run: func(context.Context, *Work) error { return nil }}
	g := w.graph(long, effect)
	if _, _, err := w.run(g); err != nil {
		t.Fatal(err)
	}
	first := w.status()
	step, _ := first.Step("long")
	if step.Seconds < 0.02 || step.Bytes != 4 || first.Cost.Seconds < step.Seconds || first.Cost.SecondsBefore != 0 || first.Cost.Bytes != 4 {
		t.Errorf("cost %+v, of the step %+v", first.Cost, step)
	}
	if _, _, err := w.run(g); err != nil {
		t.Fatal(err)
	}
	again := w.status()
	found, _ := again.Step("long")
	worked, _ := again.Step("effect") // the only one, and on a busy machine not quick
	if found.Seconds != step.Seconds || again.Cost.SecondsBefore != step.Seconds || again.Cost.Seconds != worked.Seconds || again.Cost.Bytes != 4 {
		t.Errorf("again: cost %+v, of the step %+v, of the effect %+v", again.Cost, found, worked)
	}
}

// The one that works is stopped: the one that follows does the work.
func TestFollowerTakesOver(t *testing.T) {
	w := newWorld(t)
	gate := filepath.Join(t.TempDir(), "gate")
	slow := w.step("slow", "x")
	good := slow.Run
	slow.Run = func(ctx context.Context, work *Work) error {
		return errors.Join(good(ctx, work), waitFor(ctx, gate))
	}
	g := w.graph(slow)
	first, stop := context.WithCancel(t.Context())
	var runs sync.WaitGroup
	runs.Go(func() {
		if _, err := w.runner().Run(first, "first", g); !errors.Is(err, context.Canceled) {
			t.Errorf("the first: %v", err)
		}
	})
	until(t, "the first works", func() bool { return w.did() == "slow" })
	runs.Go(func() {
		if _, err := w.runner().Run(t.Context(), "second", g); err != nil {
			t.Errorf("the second: %v", err)
		}
	})
	until(t, "the second follows", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return slices.ContainsFunc(w.events, func(e Event) bool { return e.Run == "second" && e.State == Following })
	})
	stop()
	until(t, "the second works", func() bool { return w.did() == "slow slow" })
	if err := write(gate, ""); err != nil {
		t.Fatal(err)
	}
	runs.Wait()
}

func TestEffectsAreDoneEachTime(t *testing.T) {
	w := newWorld(t)
	publish := Step{Name: "publish", Effect: true, Needs: map[string]string{"what": "a"}, Run: func(_ context.Context, work *Work) error {
		work.Say("published %s", filepath.Base(filepath.Dir(work.Need("what"))))
		w.mu.Lock()
		defer w.mu.Unlock()
		w.worked = append(w.worked, "publish")
		return nil
	}}
	for _, want := range []string{"a publish", "publish"} {
		results, worked, err := w.run(w.graph(w.step("a", "a"), publish))
		if err != nil || worked != want || len(results) != 2 {
			t.Errorf("worked on %q, %v", worked, err)
		}
	}
	step, _ := w.status().Step("publish")
	if step.State != Done || read(t, step.Log) != "published result\n" {
		t.Errorf("%+v", step)
	}
	publish.Run = func(context.Context, *Work) error { return errBroken }
	if _, _, err := w.run(w.graph(w.step("a", "a"), publish)); !errors.Is(err, errBroken) {
		t.Errorf("a broken effect: %v", err)
	}
}

func TestEventsTellHowFarTheRunIs(t *testing.T) {
	w := newWorld(t)
	if _, _, err := w.run(w.graph(w.step("a", "a"), w.step("b", "b", "a"))); err != nil {
		t.Fatal(err)
	}
	var seen []string
	for _, e := range w.events {
		seen = append(seen, e.Name+":"+string(e.State)+":"+strings.Repeat("*", e.Finished)+strings.Repeat("-", e.Steps-e.Finished))
	}
	if got := strings.Join(seen, " "); got != "a:running:-- a:done:*- b:running:*- b:done:** :done:**" {
		t.Error(got)
	}
}

// After holds a step back, and is no part of what it depends on.
func TestAfter(t *testing.T) {
	w := newWorld(t)
	gate := w.step("gate", "1")
	held := w.step("held", "x")
	held.After = []string{"gate"}
	if _, worked, err := w.run(w.graph(gate, held), "held"); err != nil || worked != "gate held" {
		t.Errorf("worked on %q, %v", worked, err)
	}
	gate = w.step("gate", "2")
	if _, worked, err := w.run(w.graph(gate, held)); err != nil || worked != "gate" {
		t.Errorf("another gate: worked on %q, %v", worked, err)
	}
	gate.Inputs["text"], held.Inputs["text"] = "3", "y"
	gate.Run = func(context.Context, *Work) error { return errBroken }
	if _, worked, err := w.run(w.graph(gate, held)); !errors.Is(err, errBroken) || worked != "" {
		t.Errorf("a broken gate: worked on %q, %v", worked, err)
	}
}

// What a step reads must be among its needs.
func TestUndeclaredNeed(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a need that was not declared was given")
		}
	}()
	(&Work{}).Need("other")
}

func TestUnknownNames(t *testing.T) {
	w := newWorld(t)
	if _, _, err := w.run(w.graph(w.step("a", "a")), "b"); err == nil || !strings.Contains(err.Error(), `no step "b", there are a`) {
		t.Errorf("an unknown target: %v", err)
	}
	if _, err := w.store.Status("other", ""); !errors.Is(err, kb.ErrNotFound) {
		t.Errorf("no run: %v", err)
	}
	if _, err := w.runner().Run(t.Context(), "../x", w.graph(w.step("a", "a"))); err == nil {
		t.Error("a run of a name that is a path")
	}
}

func TestOldJournalsGo(t *testing.T) {
	w := newWorld(t)
	g := w.graph(w.step("a", "a"))
	for range maxRuns + 5 {
		if _, _, err := w.run(g); err != nil {
			t.Fatal(err)
		}
	}
	ids, err := w.store.Runs("test")
	if err != nil || len(ids) != maxRuns || !slices.IsSortedFunc(ids, func(a, b string) int { return strings.Compare(b, a) }) {
		t.Errorf("%d runs, %v: %v", len(ids), err, ids)
	}
}

func TestDigests(t *testing.T) {
	dir := t.TempDir()
	seen := map[string]string{}
	for _, change := range []func() error{
		func() error { return nil },
		func() error { return write(filepath.Join(dir, "a"), "x") },
		func() error { return write(filepath.Join(dir, "a"), "y") },
		func() error { return chmod(filepath.Join(dir, "a"), 0o755) },
		func() error { return mkdir(filepath.Join(dir, "b")) },
		func() error { return symlink("a", filepath.Join(dir, "c")) },
		func() error { return write(filepath.Join(dir, "b", "a"), "y") },
	} {
		if err := change(); err != nil {
			t.Fatal(err)
		}
		digest, err := TreeDigest(dir)
		if err != nil || seen[digest] != "" {
			t.Errorf("%s %v", digest, err)
		}
		seen[digest] = "seen"
	}
	before := slices.Collect(maps.Keys(seen))
	if err := chtimes(filepath.Join(dir, "a")); err != nil {
		t.Fatal(err)
	}
	if digest, err := TreeDigest(dir); err != nil || !slices.Contains(before, digest) {
		t.Errorf("another time is another digest: %s %v", digest, err)
	}
	if err := mkfifo(filepath.Join(dir, "f")); err != nil {
		t.Fatal(err)
	}
	if _, err := TreeDigest(dir); err == nil || !strings.Contains(err.Error(), `"f": neither a file`) {
		t.Errorf("a pipe: %v", err)
	}
}

// A step that waits for the machine keeps nobody else from doing it.
func TestWaitingForASlotHoldsNothing(t *testing.T) {
	w := newWorld(t)
	one := task{step: w.step("a", "x"), observe: func(update) {}, spot: w.store.spot("a", "k")}
	asked := 0
	one.slot = func(context.Context) (func(), error) {
		asked++
		lock, err := filelock.Try(one.path("lock"))
		if err != nil {
			return nil, err
		}
		lock.Release()
		return func() {}, nil
	}
	if _, err := one.perform(t.Context()); err != nil || asked != 1 || w.did() != "a" {
		t.Errorf("asked %d times, worked on %q, %v", asked, w.did(), err)
	}
}
