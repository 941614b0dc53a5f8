// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"

	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/collect/cgroup"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/addup"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
)

// Programs that are loaded, and attached if they are of a kind that Start
// attaches.
type Programs struct {
	wanted     Wanted
	collection *ebpf.Collection
	attached   []*attached
	// slow are programs on functions, see attached.
	slow    map[string]bool
	missing map[string]*profiling.Unsupported
	look    uint32
}

// Start loads and attaches the programs for one job. adjust, which may be nil, can modify the spec first. The error is a
// *profiling.Unsupported, and nothing is left attached.
func Start(w Wanted, job *cgroup.Group, adjust func(*ebpf.CollectionSpec) error) (*Programs, error) {
	spec, missing, err := w.usable()
	if err != nil {
		return nil, w.refused("programs", err)
	}
	// Kernels before 5.11 charge maps to a limit on locked memory.
	if err := rlimit.RemoveMemlock(); err != nil {
		return nil, w.refused("memory limit", err)
	}
	if err := prepare(spec, job, adjust); err != nil {
		return nil, w.refused("programs", err)
	}
	collection, err := w.load(spec, missing)
	if err != nil {
		return nil, w.refused("loading", err)
	}
	p := &Programs{wanted: w, collection: collection, missing: missing, slow: map[string]bool{}, look: 1}
	for name, program := range spec.Programs {
		p.slow[name] = program.AttachType != ebpf.AttachTraceRawTp
	}
	if err := p.attach(); err != nil {
		return nil, w.refused("attaching", errors.Join(err, p.Close()))
	}
	return p, nil
}

// load omits optional parts that this kernel rejects although it has all checked features: its verifier may be too old.
func (w Wanted) load(spec *ebpf.CollectionSpec, missing map[string]*profiling.Unsupported) (*ebpf.Collection, error) {
	collection, err := ebpf.NewCollection(spec)
	if err == nil {
		return collection, nil
	}
	parts := slices.Compact(slices.Sorted(maps.Values(w.Parts)))
	// Each by itself, and then all of them.
	tries := append(slices.Collect(slices.Chunk(parts, 1)), parts)
	for _, left := range tries {
		collection, again := ebpf.NewCollection(w.without(spec, left))
		if again != nil {
			continue
		}
		for _, part := range left {
			missing[part] = w.refused("loading", err)
		}
		return collection, nil
	}
	return nil, err
}

func (w Wanted) without(spec *ebpf.CollectionSpec, parts []string) *ebpf.CollectionSpec {
	fewer := spec.Copy()
	for name, part := range w.Parts {
		if slices.Contains(parts, part) {
			delete(fewer.Programs, name)
		}
	}
	return fewer
}

func prepare(spec *ebpf.CollectionSpec, job *cgroup.Group, adjust func(*ebpf.CollectionSpec) error) error {
	for name, value := range map[string]any{"job_cgroup": job.ID, "job_level": job.Level} {
		variable := spec.Variables[name]
		if variable == nil {
			return fmt.Errorf("no variable %q", name)
		}
		if err := variable.Set(value); err != nil {
			return fmt.Errorf("variable %q: %w", name, err)
		}
	}
	if adjust == nil {
		return nil
	}
	return adjust(spec)
}

// attach omits an optional part whose function cannot be traced; the kernel lists some functions that it does not permit
// to trace.
func (p *Programs) attach() error {
	for _, name := range order(p.collection.Programs) {
		program := p.collection.Programs[name]
		if program.Type() != ebpf.Tracing {
			continue
		}
		held, err := link.AttachTracing(link.TracingOptions{Program: program})
		part, optional := p.wanted.Parts[name]
		if err != nil && optional {
			p.missing[part] = p.wanted.refused("program "+name, err)
			continue
		}
		if err != nil {
			return fmt.Errorf("program %q: %w", name, err)
		}
		p.attached = append(p.attached, &attached{name, program, held, p.slow[name]})
	}
	return nil
}

// Missing is a part of a collector that cannot work.
type Missing struct {
	Part string
	Why  *profiling.Unsupported
}

// Missing parts, by name.
func (p *Programs) Missing() []Missing {
	var all []Missing
	for _, part := range slices.Sorted(maps.Keys(p.missing)) {
		all = append(all, Missing{part, p.missing[part]})
	}
	return all
}

// Cost of programs: how often they ran, and for how long.
type Cost struct {
	Runs uint64
	NS   uint64
	// Missed runs: the kernel skips a program that another task, or an interrupt, interrupted on that processor. From
	// Linux 7.2 on, tasks can be switched inside of programs at the entries of system calls. Always counted.
	Missed uint64
}

// Map returns the map of that name; a missing one is a bug, since the C file and its Go reader agree on names.
func (p *Programs) Map(name string) (*ebpf.Map, error) {
	if m := p.collection.Maps[name]; m != nil {
		return m, nil
	}
	return nil, fmt.Errorf("bpf object %q: no map %q", p.wanted.Object, name)
}

func (p *Programs) Program(name string) (*ebpf.Program, error) {
	if program := p.collection.Programs[name]; program != nil {
		return program, nil
	}
	return nil, fmt.Errorf("bpf object %q: no program %q", p.wanted.Object, name)
}

// Spent returns the cost of all programs, which the kernel counts while enabled.
func (p *Programs) Spent() (cost Cost, err error) {
	for name, program := range p.collection.Programs {
		stats, err := program.Stats()
		if err != nil {
			return Cost{}, fmt.Errorf("program %q: %w", name, err)
		}
		cost.Runs += stats.RunCount
		cost.NS += uint64(stats.Runtime.Nanoseconds())
		cost.Missed += stats.RecursionMisses
	}
	return cost, nil
}

// Stop detaches the programs and leaves the maps.
func (p *Programs) Stop() error {
	var all []error
	for _, a := range p.attached {
		if a.link != nil {
			all = append(all, a.link.Close())
		}
	}
	p.attached = nil
	return errors.Join(all...)
}

// Close detaches and releases everything.
func (p *Programs) Close() error {
	err := p.Stop()
	p.collection.Close()
	return err
}

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

// Counts passes on the entries of a map of numbers that is per CPU, the CPUs added up.
func Counts[K any](p *Programs, name string, hand func(key K, count uint64) error) error {
	m, err := p.Map(name)
	if err != nil {
		return err
	}
	var key K
	var each []uint64
	entries := m.Iterate()
	for entries.Next(&key, &each) {
		var all uint64
		for _, one := range each {
			all += one
		}
		if err := hand(key, all); err != nil {
			return err
		}
	}
	if err := entries.Err(); err != nil {
		return fmt.Errorf("map %s: %w", m, err)
	}
	return nil
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
