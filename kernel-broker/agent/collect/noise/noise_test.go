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
