// SPDX-License-Identifier: Apache-2.0

//go:build emulated

package model

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kernelbroker/kernelbroker/tests/emulated"
)

// length is how many actions a scenario has; KB_MODEL_LENGTH is another length.
const length = 30

// usualSeed draws the scenarios that every run of the tests has.
const usualSeed = "1"

// setting is a number from the environment.
func setting(t *testing.T, name string, usual int) int {
	text := os.Getenv(name)
	if text == "" {
		return usual
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s: %q is no number above 0", name, text)
	}
	return n
}

// The cluster keeps its promises whatever users, administrators and faults do.
// KB_MODEL_STEPS is how many steps there are in all, KB_MODEL_LANES how many
// clusters run side by side, KB_MODEL_SEED says which scenarios are drawn, and
// "random" draws others each time; KB_MODEL_WITHOUT has names of actions, with
// commas, that are left out. KB_MODEL_SCENARIO is a file with a scenario as a
// failure leaves it, which is run in place of random ones.
func TestModel(t *testing.T) {
	m := trials{t: t}
	if path := os.Getenv("KB_MODEL_SCENARIO"); path != "" {
		m.one(path)
		return
	}
	steps, lanes := setting(t, "KB_MODEL_STEPS", 60), setting(t, "KB_MODEL_LANES", 2)
	actions := setting(t, "KB_MODEL_LENGTH", length)
	without := map[string]bool{}
	for name := range strings.SplitSeq(os.Getenv("KB_MODEL_WITHOUT"), ",") {
		without[name] = true
	}
	seed := os.Getenv("KB_MODEL_SEED")
	switch seed {
	case "":
		seed = usualSeed
	case "random":
		seed = "0" // that is how rapid says it
	}
	for name, value := range map[string]string{
		"rapid.checks": "100000", "rapid.shrinktime": "0s", "rapid.nofailfile": "true", "rapid.seed": seed,
	} {
		if err := flag.Set(name, value); err != nil {
			t.Fatal(err)
		}
	}
	defer func() {
		t.Logf("%d steps in %d scenarios with %d jobs; administrators had to repair %d times",
			m.steps.Load(), m.scenarios.Load(), m.jobs.Load(), m.repairs.Load())
	}()
	lane := make(chan struct{}, lanes)
	var all sync.WaitGroup
	scenario := scenarios(actions, without)
	rapid.Check(t, func(rt *rapid.T) {
		s := scenario.Draw(rt, "scenario")
		if m.steps.Load() >= int64(steps) {
			return
		}
		lane <- struct{}{}
		all.Go(func() {
			defer func() { <-lane }()
			if err := m.try(s); err != nil {
				t.Error(err)
			}
		})
	})
	all.Wait()
}

// trials are the scenarios of a test. One that fails does not end the others: what a
// long run finds, it finds all of.
type trials struct {
	t                               *testing.T
	steps, scenarios, jobs, repairs atomic.Int64
}

// try runs one scenario in a folder of its own, which keeps the scenario and its
// course if it fails.
func (m *trials) try(s Scenario) error {
	o, err := emulated.Defaults()
	if err != nil {
		return err
	}
	number := m.scenarios.Add(1)
	dir := filepath.Join(o.Repo, "build/emulated", o.Slurm, fmt.Sprintf("model-%d-%d", os.Getpid(), number))
	ctx, cancel := context.WithTimeout(context.WithoutCancel(m.t.Context()), 20*time.Minute)
	defer cancel()
	result, err := Run(ctx, s, dir)
	m.steps.Add(int64(result.Steps))
	m.jobs.Add(int64(result.Jobs))
	m.repairs.Add(int64(result.Repairs))
	if err == nil {
		return nil
	}
	path := filepath.Join(dir, "scenario.json")
	course, readErr := os.ReadFile(result.Course)
	text, writeErr := json.Marshal(s)
	if writeErr == nil {
		writeErr = os.WriteFile(path, text, 0o644)
	}
	return errors.Join(fmt.Errorf("scenario %s: %w\ncourse:\n%s", path, err, course), readErr, writeErr)
}

// one runs a scenario of a file.
func (m *trials) one(path string) {
	text, err := os.ReadFile(path)
	if err != nil {
		m.t.Fatal(err)
	}
	var s Scenario
	if err := json.Unmarshal(text, &s); err != nil {
		m.t.Fatal(err)
	}
	if err := m.try(s); err != nil {
		m.t.Fatal(err)
	}
}
