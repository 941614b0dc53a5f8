// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/addup"
)

// Lookup reads one entry of a map; of a map that is per CPU into a list, with one value for each.
func Lookup[V any](p *Programs, name string, key uint32) (value V, err error) {
	m, err := p.Map(name)
	if err == nil {
		err = m.Lookup(key, &value)
	}
	if err != nil {
		err = fmt.Errorf("map %s: %w", name, err)
	}
	return value, err
}

// Sum reads one entry of a per-CPU map and adds the CPUs up, as package addup does.
func Sum[V comparable](p *Programs, name string, key uint32) (V, error) {
	var sum, nothing V
	each, err := Lookup[[]V](p, name, key)
	for i := range each {
		if each[i] != nothing {
			addup.Add(&sum, &each[i])
		}
	}
	return sum, err
}

// batch is the number of entries per system call.
const batch = 1024

// Each reads all entries of a map that is not per CPU. An entry of a changing map may appear twice; the last one counts.
func Each[K comparable, V any](p *Programs, name string) (map[K]V, error) {
	m, err := p.Map(name)
	if err != nil {
		return nil, err
	}
	all := map[K]V{}
	keys, values := make([]K, batch), make([]V, batch)
	var cursor ebpf.MapBatchCursor
	for {
		n, err := m.BatchLookup(&cursor, keys, values, nil)
		for i := range n {
			all[keys[i]] = values[i]
		}
		switch {
		case errors.Is(err, ebpf.ErrKeyNotExist):
			return all, nil // the end
		case err != nil:
			return nil, fmt.Errorf("map %s: %w", m, err)
		}
	}
}

// In passes on the entries of an array map at sorted places. If many places up to the last one are wanted, it reads in
// batches; otherwise one by one.
func In[V any](m *ebpf.Map, places []uint32, hand func(i int, value *V) error) error {
	if len(places) == 0 {
		return nil
	}
	if last := places[len(places)-1]; len(places) < batchLeast || uint64(last) >= batchShare*uint64(len(places)) {
		return oneByOne(m, places, hand)
	}
	keys, values := make([]uint32, batch), make([]V, batch)
	var cursor ebpf.MapBatchCursor
	for done := 0; done < len(places); {
		n, err := m.BatchLookup(&cursor, keys, values, nil)
		if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) { // which is the end
			return fmt.Errorf("map %s: %w", m, err)
		}
		for i := range n {
			for ; done < len(places) && places[done] == keys[i]; done++ {
				if err := hand(done, &values[i]); err != nil {
					return err
				}
			}
		}
		if err != nil && done < len(places) {
			return fmt.Errorf("map %s: no entry at place %d: %w", m, places[done], err)
		}
	}
	return nil
}

// Minimum number of entries for batches, and minimum fraction of wanted entries.
const (
	batchLeast = 64
	batchShare = 4
)

func oneByOne[V any](m *ebpf.Map, places []uint32, hand func(i int, value *V) error) error {
	for i, place := range places {
		var value V
		if err := m.Lookup(place, &value); err != nil {
			return fmt.Errorf("map %s: %w", m, err)
		}
		if err := hand(i, &value); err != nil {
			return err
		}
	}
	return nil
}
