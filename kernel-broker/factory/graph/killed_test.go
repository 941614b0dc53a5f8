// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// victimVariable holds the plan of the process that TestKilledAnywhere kills.
const victimVariable = "GRAPH_TEST_VICTIM"

// plan is a graph that another process can make too: step i needs those that
// its row names, all of them before it.
type plan struct {
	Dir    string
	Needs  [][]int
	Millis []int
}

func drawPlan(t *rapid.T) plan {
	p := plan{}
	for i := range rapid.IntRange(1, 9).Draw(t, "steps") {
		var needs []int
		for j := range i {
			if rapid.IntRange(0, 2).Draw(t, "edge") == 0 {
				needs = append(needs, j)
			}
		}
		p.Needs = append(p.Needs, needs)
		p.Millis = append(p.Millis, rapid.IntRange(0, 25).Draw(t, "millis"))
	}
	return p
}

func (p plan) name(i int) string { return fmt.Sprintf("s%d", i) }

// text is what step i must come to.
func (p plan) text(i int) string {
	var needs []string
	index := map[string]int{}
	for _, j := range p.Needs[i] {
		needs = append(needs, p.name(j))
		index[p.name(j)] = j
	}
	return expected(p.name(i), needs, func(need string) string { return p.text(index[need]) })
}

// graph makes steps that write their result in two parts, with time between
// them, and note in a file that they began.
func (p plan) graph(fail func(i int) error) (*Graph, error) {
	var steps []Step
	for i, millis := range p.Millis {
		s := Step{Name: p.name(i), Inputs: map[string]string{"name": p.name(i)}, Needs: map[string]string{}}
		for _, j := range p.Needs[i] {
			s.Needs[p.name(j)] = p.name(j)
		}
		s.Run = func(ctx context.Context, work *Work) error {
			if err := appendTo(filepath.Join(p.Dir, "began"), s.Name+"\n"); err != nil {
				return err
			}
			text := p.name(i)
			half := len(p.text(i)) / 2
			var needs []string
			for as := range s.Needs {
				needs = append(needs, as)
			}
			text = expected(text, needs, func(need string) string {
				part, err := os.ReadFile(filepath.Join(work.Need(need), "text"))
				if err != nil {
					panic(err)
				}
				return string(part)
			})
			path := filepath.Join(work.Dir, "text")
			if err := appendTo(path, text[:half]); err != nil {
				return err
			}
			time.Sleep(time.Duration(millis) * time.Millisecond)
			if err := fail(i); err != nil {
				return err
			}
			return appendTo(path, text[half:])
		}
		steps = append(steps, s)
	}
	return New(steps...)
}

func appendTo(path, text string) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = file.WriteString(text)
	return err
}

func never(int) error { return nil }

func beVictim(text string) {
	var p plan
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		panic(err)
	}
	g, err := p.graph(never)
	if err == nil {
		_, err = (&Runner{Store: Store{Dir: p.Dir}, Parallel: 3}).Run(context.Background(), "test", g)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// check looks at all that a run has left: results are whole and right, and what
// had a result was not begun again.
func (p plan) check(t *testing.T, had map[string]bool, began string) map[string]bool {
	t.Helper()
	store := Store{Dir: p.Dir}
	whole(t, store)
	for name := range strings.FieldsSeq(began) {
		if had[name] {
			t.Errorf("%s was begun again after its result was there", name)
		}
	}
	has := map[string]bool{}
	for i := range p.Needs {
		found, err := filepath.Glob(filepath.Join(p.Dir, "steps", p.name(i), "*", "result", "files", "text"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range found {
			has[p.name(i)] = true
			if got := read(t, path); got != p.text(i) {
				t.Errorf("%s came to %q, want %q", p.name(i), got, p.text(i))
			}
		}
	}
	return has
}

// took returns what steps noted since the last call.
func (p plan) took() string {
	path := filepath.Join(p.Dir, "began")
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	if err := os.Remove(path); err != nil {
		return ""
	}
	return string(text)
}

// TestKilledAnywhere runs random graphs in a process that is killed at random
// moments, until one of them gets to the end.
func TestKilledAnywhere(t *testing.T) {
	kills := 0
	for seed := range 10 {
		p := rapid.Custom(drawPlan).Example(seed)
		p.Dir = quickDir(t)
		spec, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		random := rand.New(rand.NewPCG(uint64(seed), 1))
		had := map[string]bool{}
		for try := 0; ; try++ {
			victim := exec.Command(os.Args[0])
			victim.Env = append(os.Environ(), victimVariable+"="+string(spec))
			victim.Stderr = os.Stderr
			if err := victim.Start(); err != nil {
				t.Fatal(err)
			}
			if try < 8 {
				time.AfterFunc(time.Duration(random.IntN(60))*time.Millisecond, func() { _ = victim.Process.Kill() })
			}
			err := victim.Wait()
			had = p.check(t, had, p.took())
			if err == nil {
				break
			}
			if victim.ProcessState.Exited() {
				t.Fatalf("seed %d: the victim ended by itself: %v", seed, err)
			}
			kills++
			p.checkJournal(t)
		}
		if len(had) != len(p.Needs) {
			t.Errorf("seed %d: %d of %d results", seed, len(had), len(p.Needs))
		}
	}
	t.Logf("killed %d times", kills)
	if kills == 0 {
		t.Error("nothing was killed")
	}
}

// checkJournal reads what a killed run has left, if it came to write anything.
func (p plan) checkJournal(t *testing.T) {
	t.Helper()
	store := Store{Dir: p.Dir}
	ids, err := store.Runs("test")
	if err != nil || len(ids) == 0 {
		return
	}
	status, err := store.Status("test", "")
	if errors.Is(err, kb.ErrNotFound) {
		return // killed before it wrote its first status
	}
	if err != nil {
		t.Error(err)
		return
	}
	if !status.State.Ended() {
		t.Errorf("the run is %s, and its process is dead", status.State)
	}
	for _, step := range status.Steps {
		if step.State == Running || step.State == Following {
			t.Errorf("%s is %s, and its process is dead", step.Name, step.State)
		}
	}
}

// TestRandomGraphs fails and stops random graphs at random steps within this
// process; in the end the model and the store agree.
func TestRandomGraphs(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := drawPlan(rt)
		p.Dir = quickDir(t)
		for i := range p.Millis {
			p.Millis[i] = 0
		}
		had := map[string]bool{}
		for range rapid.IntRange(0, 3).Draw(rt, "troubles") {
			at := rapid.IntRange(0, len(p.Needs)-1).Draw(rt, "at")
			stop := rapid.Bool().Draw(rt, "stop")
			ctx, cancel := context.WithCancel(t.Context())
			g, err := p.graph(func(i int) error {
				if i == at && stop {
					cancel()
				} else if i == at {
					return errBroken
				}
				return nil
			})
			if err != nil {
				rt.Fatal(err)
			}
			_, err = (&Runner{Store: Store{Dir: p.Dir}, Parallel: 3}).Run(ctx, "test", g)
			cancel()
			if hit := !had[p.name(at)]; hit != (err != nil) {
				rt.Errorf("step %d was to be in trouble (%v), the run says %v", at, hit, err)
			}
			had = p.check(t, had, p.took())
		}
		g, err := p.graph(never)
		if err != nil {
			rt.Fatal(err)
		}
		results, err := (&Runner{Store: Store{Dir: p.Dir}, Parallel: 3}).Run(t.Context(), "test", g)
		if err != nil || len(results) != len(p.Needs) {
			rt.Errorf("%d results, %v", len(results), err)
		}
		p.check(t, had, p.took())
	})
}
