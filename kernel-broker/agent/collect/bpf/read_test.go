// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"errors"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Reading in batches and one by one give the same entries of a real map, so this test needs the right to create one.
func TestIn(t *testing.T) {
	const entries = 3000 // more than two batches
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 16, MaxEntries: entries})
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS) {
		t.Skip("no right to make a map: ", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	type value struct{ Place, Twice uint64 }
	for place := range uint32(entries) {
		if err := m.Put(place, value{uint64(place), 2 * uint64(place)}); err != nil {
			t.Fatal(err)
		}
	}
	every := func(step uint32) (places []uint32) {
		for place := uint32(0); place < entries; place += step {
			places = append(places, place)
		}
		return places
	}
	for name, places := range map[string][]uint32{
		"none": nil, "the first": {0}, "the last": {entries - 1}, "all": every(1), "each third": every(3), "few of many": every(500),
		"as many as make no batch": every(1)[:batchLeast-1], "as many as make one": every(1)[:batchLeast], "one batch": every(1)[:batch],
		"one of batchShare": every(batchShare), "less": every(batchShare + 1), "a place twice": slices.Insert(every(1), 7, 7), "not the first": every(1)[1500:],
	} {
		var got []uint32
		err := In(m, places, func(i int, v *value) error {
			if v.Twice != 2*v.Place || i != len(got) {
				t.Errorf("%s: %d: %+v", name, i, *v)
			}
			got = append(got, uint32(v.Place))
			return nil
		})
		if err != nil || !slices.Equal(got, places) {
			t.Errorf("%s: %d of %d places, %v", name, len(got), len(places), err)
		}
	}
	enough := errors.New("enough")
	for name, places := range map[string][]uint32{"in a batch": every(1), "one by one": every(500)} {
		calls := 0
		if err := In(m, places, func(int, *value) error { calls++; return enough }); !errors.Is(err, enough) || calls != 1 {
			t.Errorf("%s: %v after %d calls", name, err, calls)
		}
		if err := In(m, append(places, entries), func(int, *value) error { return nil }); !errors.Is(err, ebpf.ErrKeyNotExist) {
			t.Errorf("%s, beyond the end: %v", name, err)
		}
	}
}
