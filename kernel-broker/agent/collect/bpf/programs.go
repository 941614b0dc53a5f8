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
}

// Map returns the map of that name; a missing one is a bug, since the C file and its Go reader agree on names.
func (p *Programs) Map(name string) (*ebpf.Map, error) {
	if m := p.collection.Maps[name]; m != nil {
		return m, nil
	}
	return nil, fmt.Errorf("bpf object %q: no map %q", p.wanted.Object, name)
}

// Program of that name.
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
