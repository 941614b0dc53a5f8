// SPDX-License-Identifier: Apache-2.0

package noise

import (
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
	"github.com/kernelbroker/kernelbroker/tests/support/bpftest"
)

func TestLayouts(t *testing.T) {
	bpftest.Check(t, wanted, map[string]bpftest.Layout{
		"cpus":    {Value: cpuState{}},
		"sources": {Key: sourceKey{}, Value: sourceSum{}},
	})
}

func TestSourceNames(t *testing.T) {
	name := func(text string) (n [16]byte) {
		copy(n[:], text)
		return n
	}
	for _, c := range []struct {
		key  sourceKey
		kind profiling.NoiseKind
		name string
	}{
		{sourceKey{Kind: 0, Name: name("local_timer")}, profiling.NoiseIRQ, "local_timer"},
		{sourceKey{Kind: 1, Name: name("d")}, profiling.NoiseSoftIRQ, "net_rx"},
		{sourceKey{Kind: 1, Name: name("p")}, profiling.NoiseSoftIRQ, "p"},
		{sourceKey{Kind: 3, Name: name("kworker/0:1-eve")}, profiling.NoiseThread, "kworker/0:1-eve"},
		{sourceKey{Kind: 9}, "kind 9", ""},
	} {
		if kind, name := c.key.kind(), c.key.name(); kind != c.kind || name != c.name {
			t.Errorf("%+v: %q %q", c.key, kind, name)
		}
	}
}

func TestWantedContinues(t *testing.T) {
	for want, s := range map[uint64]cpuState{
		30: {JobNS: 10, ThiefNS: 20, Mark: 100},
		80: {JobNS: 10, ThiefNS: 20, Mark: 100, Occupant: 1},
		10: {JobNS: 10, Mark: 200, Occupant: 1}, // the mark is later than the clock that was read
	} {
		if got := s.wanted(150); got != want {
			t.Errorf("%+v: %d, want %d", s, got, want)
		}
	}
}

// A pause ends what is under way: nobody sees its end. What the job had up to there stays its own.
func TestPauseCuts(t *testing.T) {
	for name, c := range map[string]struct {
		before, want cpuState
		changed      bool
	}{
		"idle":                {cpuState{JobNS: 10, Mark: 100}, cpuState{JobNS: 10, Mark: 100}, false},
		"the job":             {cpuState{JobNS: 10, Mark: 100, Occupant: job}, cpuState{JobNS: 60, Mark: 100}, true},
		"marked meanwhile":    {cpuState{JobNS: 10, Mark: 200, Occupant: job}, cpuState{JobNS: 10, Mark: 200}, true},
		"in an interrupt":     {cpuState{LostNS: 7, Mark: 100, Occupant: job, IRQBegan: 120, SoftBegan: 110}, cpuState{JobNS: 50, LostNS: 7, Mark: 100}, true},
		"another has its CPU": {cpuState{JobNS: 10, ThiefNS: 5, Mark: 100, ThiefBegan: 100, Occupant: 2, Victim: 42}, cpuState{JobNS: 10, ThiefNS: 5, Mark: 100, ThiefBegan: 100}, true},
	} {
		got := c.before
		if changed := got.cut(150); changed != c.changed || got != c.want {
			t.Errorf("%s: %+v, %v", name, got, changed)
		}
		if got.wanted(1000) != c.want.JobNS+c.want.ThiefNS {
			t.Errorf("%s: the pause counts as the job's: %d", name, got.wanted(1000))
		}
	}
}
