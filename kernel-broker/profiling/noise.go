// SPDX-License-Identifier: Apache-2.0

package profiling

import (
	"cmp"
	"slices"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/addup"
)

// NoiseKind is what sort of thing took time away.
type NoiseKind string

// The kinds.
const (
	NoiseIRQ     NoiseKind = "irq"
	NoiseSoftIRQ NoiseKind = "softirq"
	NoiseNMI     NoiseKind = "nmi"
	// NoiseThread is a thread that had the CPU while a task of the job could
	// have run there.
	NoiseThread NoiseKind = "thread"
)

// NoiseSource is one cause of noise on one CPU.
type NoiseSource struct {
	Kind NoiseKind `json:"kind" sum:"key"`
	// Name of the interrupt or of the thread.
	Name  string `json:"name" sum:"key"`
	Count uint64 `json:"count"`
	NS    uint64 `json:"ns"`
	// MostNS is the worst single event, At when it ended.
	MostNS uint64    `json:"most_ns"`
	At     time.Time `json:"at"`
	Times  Histogram `json:"times"`
}

// CPUNoise is one CPU.
type CPUNoise struct {
	Node string `json:"node" sum:"key"`
	CPU  uint32 `json:"cpu" sum:"key"`
	// WantedNS is how long a task of the job had the CPU or could have had it;
	// LostNS is the part that went to noise.
	WantedNS uint64        `json:"wanted_ns"`
	LostNS   uint64        `json:"lost_ns"`
	Sources  []NoiseSource `json:"sources"`
	// Dropped events are in LostNS, but found no room among Sources.
	Dropped uint64 `json:"dropped"`
}

// Left is the share of the time that was left to the application.
func (c CPUNoise) Left() float64 {
	if c.WantedNS == 0 {
		return 1
	}
	return 1 - float64(min(c.LostNS, c.WantedNS))/float64(c.WantedNS)
}

// Noise is what the collector of that name found.
type Noise struct {
	// Method is "bpf", or "osnoise" for the kernel's own tracer.
	Method string     `json:"method"`
	CPUs   []CPUNoise `json:"cpus"`
}

// Left is the share over all CPUs.
func (n *Noise) Left() float64 {
	var all CPUNoise
	for _, c := range n.CPUs {
		all.WantedNS += c.WantedNS
		all.LostNS += c.LostNS
	}
	return all.Left()
}

// AgentThread is the agent's name among the sources, as the kernel cuts it short:
// the observer takes time away as well.
const AgentThread = "kernel-broker-a"

// Observing is the part of the time that the job wanted its CPUs in which the agent
// had them.
func (n *Noise) Observing() float64 {
	var ns, wanted uint64
	for _, c := range n.CPUs {
		wanted += c.WantedNS
		for _, s := range c.Sources {
			if s.Kind == NoiseThread && s.Name == AgentThread {
				ns += s.NS
			}
		}
	}
	if wanted == 0 {
		return 0
	}
	return float64(min(ns, wanted)) / float64(wanted)
}

// Worst is the longest single event and where it was; ok is false without any.
func (n *Noise) Worst() (cpu CPUNoise, source NoiseSource, ok bool) {
	for _, c := range n.CPUs {
		for _, s := range c.Sources {
			if !ok || s.MostNS > source.MostNS {
				cpu, source, ok = c, s, true
			}
		}
	}
	return cpu, source, ok
}

// Sum is what two nodes found, or two spans of time on one node.
func (n *Noise) Sum(other *Noise) *Noise {
	type figures Noise
	sum := Noise(addup.Plus(figures(*n), figures(*other)))
	if n.Method != "" && other.Method != "" && n.Method != other.Method {
		sum.Method = "mixed"
	}
	for i := range sum.CPUs {
		sum.CPUs[i].Sources = slices.Clone(sum.CPUs[i].Sources)
		SortSources(sum.CPUs[i].Sources)
	}
	slices.SortFunc(sum.CPUs, func(a, b CPUNoise) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.CPU, b.CPU))
	})
	return &sum
}

// Bound keeps the sources of each CPU that took most; events of the others count as dropped.
func (n *Noise) Bound(most int) {
	n.CPUs = slices.Clone(n.CPUs)
	for i := range n.CPUs {
		c := &n.CPUs[i]
		c.Sources = slices.Clone(c.Sources)
		SortSources(c.Sources)
		kept := min(most, len(c.Sources))
		for _, s := range c.Sources[kept:] {
			c.Dropped += s.Count
		}
		c.Sources = c.Sources[:kept]
	}
}

// SortSources puts what took most first.
func SortSources(all []NoiseSource) {
	slices.SortFunc(all, func(a, b NoiseSource) int {
		return cmp.Or(cmp.Compare(b.NS, a.NS), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
}

// Sum is both together, with the worst event of either.
func (s NoiseSource) Sum(other NoiseSource) NoiseSource {
	type figures NoiseSource
	sum := NoiseSource(addup.Plus(figures(s), figures(other)))
	if sum.MostNS, sum.At = s.MostNS, s.At; other.MostNS > s.MostNS || other.MostNS == s.MostNS && other.At.Before(s.At) {
		sum.MostNS, sum.At = other.MostNS, other.At
	}
	return sum
}
