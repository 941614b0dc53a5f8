package bpf

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
)

// Sum reads one entry of a per-CPU map and adds the CPUs up.
func Sum[V any](m *ebpf.Map, key uint32, add func(sum *V, one V)) (V, error) {
	var sum V
	var each []V
	if err := m.Lookup(key, &each); err != nil {
		return sum, fmt.Errorf("map %s: %w", m, err)
	}
	for _, one := range each {
		add(&sum, one)
	}
	return sum, nil
}

// batch is how many entries one system call reads.
const batch = 1024

// Each reads all entries of a map that is not per CPU. One that changes
// meanwhile may give an entry twice; the last one counts, since keys are kept.
func Each[K comparable, V any](m *ebpf.Map) (map[K]V, error) {
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
		case errors.Is(err, ebpf.ErrNotSupported) && len(all) == 0:
			return one[K, V](m)
		case err != nil:
			return nil, fmt.Errorf("map %s: %w", m, err)
		}
	}
}

// one reads entry by entry, on kernels before 5.6.
func one[K comparable, V any](m *ebpf.Map) (map[K]V, error) {
	all := map[K]V{}
	var key K
	var value V
	entries := m.Iterate()
	for entries.Next(&key, &value) {
		all[key] = value
	}
	if err := entries.Err(); err != nil {
		return nil, fmt.Errorf("map %s: %w", m, err)
	}
	return all, nil
}
