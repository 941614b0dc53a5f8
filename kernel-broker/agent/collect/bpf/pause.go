// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// attached is a program and the link that holds it; nil while it is detached.
type attached struct {
	name    string
	program *ebpf.Program
	link    link.Link
	// slow to detach: the kernel releases a traced function only after every CPU was elsewhere, a tenth of a second
	// each. A tracepoint is released at once.
	slow bool
}

// Pause stops all counting and detaches tracepoints, since those of system calls slow down every call of every job on
// the node. Function traces stay attached until Detach.
func (p *Programs) Pause() error {
	if err := p.count(); err != nil {
		return err
	}
	return p.detach(func(a *attached) bool { return !a.slow })
}

// Detach leaves the functions as well.
func (p *Programs) Detach() error {
	return p.detach(func(*attached) bool { return true })
}

func (p *Programs) detach(which func(*attached) bool) error {
	var all []error
	for _, a := range p.attached {
		if a.link == nil || p.wanted.Stays[a.name] || !which(a) {
			continue
		}
		all = append(all, a.link.Close())
		a.link = nil
	}
	return errors.Join(all...)
}

// Resume starts another period of observation.
func (p *Programs) Resume() error {
	if err := p.count(); err != nil {
		return err
	}
	for _, a := range p.attached {
		if a.link != nil {
			continue
		}
		again, err := link.AttachTracing(link.TracingOptions{Program: a.program})
		if err != nil {
			return fmt.Errorf("program %q: attached again: %w", a.name, err)
		}
		a.link = again
	}
	return nil
}

// count increments the period number: odd numbers observe, see job.h.
func (p *Programs) count() error {
	p.look++
	return p.Set("look", p.look)
}

// Set changes a variable of the programs while they run.
func (p *Programs) Set(name string, value any) error {
	variable := p.collection.Variables[name]
	if variable == nil {
		return fmt.Errorf("bpf object %q: no variable %q", p.wanted.Object, name)
	}
	if err := variable.Set(value); err != nil {
		return fmt.Errorf("bpf object %q: variable %q: %w", p.wanted.Object, name, err)
	}
	return nil
}
