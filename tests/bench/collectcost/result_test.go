// SPDX-License-Identifier: Apache-2.0

package collectcost

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/measure"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
)

func TestEverySetupOnceARound(t *testing.T) {
	p := plan{Rounds: 3, Setups: setups(0.04)}
	seen := map[turn]int{}
	var first []int
	for i, turn := range p.turns() {
		seen[turn]++
		if i > 0 && (i-1)%len(p.Setups) == 0 {
			first = append(first, turn.setup)
		}
	}
	if len(seen) != 1+3*9 || seen[turn{0, 0}] != 1 {
		t.Errorf("turns %v", seen)
	}
	for one, times := range seen {
		if times != 1 {
			t.Errorf("%v %d times", one, times)
		}
	}
	if slices.Sort(first); len(slices.Compact(first)) != 3 {
		t.Errorf("rounds begin with %v", first)
	}
	if got := len(setups(0)); got != 5 {
		t.Errorf("%d setups without a budget", got)
	}
}

func counted(marker int, user, kernel uint64) measure.Region {
	return measure.Region{Marker: marker, User: measure.Counts{Instructions: user}, Kernel: measure.Counts{Instructions: kernel}}
}

// three are the regions of a job.
func three(job int, kernel uint64) []measure.Region {
	return []measure.Region{counted(regionStart, 10e6, 0), counted(job, 800, kernel), counted(regionStop, 5e6, 0)}
}

func TestJoin(t *testing.T) {
	all := []ran{{Setup: 0}, {Setup: 1}}
	regions := append(three(regionOwn, 200), three(regionOwn, 250)...)
	samples, err := join(all, regions, regionOwn)
	if err != nil || len(samples) != 2 || whole(samples[1].Job) != 1050 || samples[1].Setup != 1 {
		t.Errorf("%+v, %v", samples, err)
	}
	if _, err := join(all, regions, regionJob); !errors.Is(err, errRegions) {
		t.Errorf("another marker: %v", err)
	}
	if _, err := join(all[:1], regions, regionOwn); !errors.Is(err, errRegions) {
		t.Errorf("a job too few: %v", err)
	}
}

// measured is a run in which system calls and io together add so much.
func measured(t *testing.T, kernel, elapsed uint64) Result {
	t.Helper()
	both := Setup{[]profiling.Collector{profiling.CollectSyscalls, profiling.CollectIO}, 0}
	p := plan{Job: Job{Name: "j", Both: 4}, Rounds: 1, Setups: []Setup{{}, both}}
	all := []ran{{0, 0, 77, 77, 1, 0}, {1, 0, 1000, 1000, 1, 0}, {1, 1, elapsed, 1020, 0.5, 0.01}}
	samples, err := join(all, slices.Concat(three(regionJob, 5), three(regionJob, 200), three(regionJob, kernel)), regionJob)
	if err != nil {
		t.Fatal(err)
	}
	r := Result{Rounds: 1, Jobs: []Figures{summarise(p, samples)}}
	r.judge()
	return r
}

func TestSummarise(t *testing.T) {
	job := measured(t, 230, 1010).Jobs[0]
	with := job.With[0]
	for name, c := range map[string]struct{ got, want float64 }{
		"instructions":   {with.Instructions.Median, 3},
		"time":           {with.Elapsed.Median, 1},
		"CPU time":       {with.JobTime.Median, 2},
		"own account":    {with.Own.Median, 1},
		"looked at":      {with.Looked.Median, 50},
		"start and stop": {with.Once.Median, 15},
		"alone":          {job.Alone.Instructions.Median, 1000},
		"user's share":   {job.Alone.User, 0.8},
	} {
		if math.Abs(c.got-c.want) > 1e-9 {
			t.Errorf("%s: %v, want %v", name, c.got, c.want)
		}
	}
}

// Both figures have to be within the goal.
func TestJudge(t *testing.T) {
	for name, c := range map[string]struct {
		kernel, elapsed uint64
		met             bool
	}{
		"below the limit":       {239, 1039, true},
		"too many instructions": {241, 1000, false},
		"too much time":         {200, 1041, false},
	} {
		r := measured(t, c.kernel, c.elapsed)
		if len(r.Goals) != 1 || r.Goals[0].Met != c.met || r.Goals[0].Limit != 4 {
			t.Errorf("%s: %+v", name, r.Goals)
		}
		var out bytes.Buffer
		if err := r.Print(&out); err != nil || strings.Contains(out.String(), "goal not met") == c.met {
			t.Errorf("%s: %v\n%s", name, err, out.String())
		}
	}
}

func TestChosen(t *testing.T) {
	if all, err := (Options{}).jobs(); err != nil || len(all) != len(Jobs()) {
		t.Errorf("%d jobs, %v", len(all), err)
	}
	if one, err := (Options{Only: []string{"hpcc"}}).jobs(); err != nil || len(one) != 1 || one[0].Name != "hpcc" {
		t.Errorf("%v, %v", one, err)
	}
	if _, err := (Options{Only: []string{"nothing"}}).jobs(); err == nil {
		t.Error("a job that is not there")
	}
}
