// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// large is a world of nodes at rest on stock, and what it decides on if something is heard of one of them.
func large(tb testing.TB, nodes int) (in Input, scope func(node string) *Scope) {
	now := noon
	in = Input{
		Config: Defaults(), Nodes: map[string]*kb.Node{}, Allocations: map[kb.JobID]*kb.Allocation{}, Agents: map[string]Agent{},
		Catalog: &fakeCatalog{}, NewToken: func() string { return "token" },
		Slurm: kb.SlurmView{Jobs: map[uint32]kb.SlurmJob{}, Nodes: map[string]kb.SlurmNode{}},
	}
	for i := range nodes {
		name := fmt.Sprintf("n%05d", i)
		in.Nodes[name] = &kb.Node{Name: name}
		in.Slurm.Nodes[name] = kb.SlurmNode{Name: name, State: "IDLE", Partitions: []string{"main"}, CPUs: 4, MemoryMiB: 1000}
		in.Agents[name] = Agent{
			Connected: true, Since: now, Slurmd: Slurmd{}.Said(0, true, now),
			Boot:      kb.Boot{BootID: name + "-boot1", BuildID: kernels[0].BuildID, Release: kernels[0].Release, BootedAt: now},
			Inventory: kb.Inventory{Architecture: "x86_64", MemoryMiB: 1000, CPUs: 4, Drivers: []string{"ext4", "virtio_blk", "virtio_net"}},
		}
	}
	in.Slurm.Index()
	for range 8 {
		now = now.Add(time.Second)
		in.Now, in.Slurm.At = now, now
		out := Decide(in)
		for _, n := range out.Nodes {
			in.Nodes[n.Name] = n
		}
		if len(out.Nodes) == 0 {
			break
		}
	}
	of := JobsOf(in.Allocations)
	return in, func(node string) *Scope {
		s := NewScope()
		s.Nodes[node] = true
		s.Close(in.Nodes, in.Allocations, of)
		return &s
	}
}

// One node of ten thousand that slurmctld shows otherwise than before costs as if there were no others: at most 50 microseconds.
func BenchmarkDecideOneChangedNode(b *testing.B) {
	in, scope := large(b, 10_000)
	const name = "n05000"
	s := in.Slurm.Nodes[name]
	s.State, s.Flags, s.Reason, s.By = "IDLE", []string{"DRAIN"}, "a fan is loud", "root@2026-11-20T12:00:00"
	in.Slurm.Nodes[name] = s
	b.ReportAllocs()
	for b.Loop() {
		in.Scope = scope(name)
		if out := Decide(in); len(out.Nodes) != 1 {
			b.Fatalf("%d nodes changed, want the one that was drained", len(out.Nodes))
		}
	}
}

// One of which something is heard and nothing changes, as most often.
func BenchmarkDecideOneUnchangedNode(b *testing.B) {
	in, scope := large(b, 10_000)
	b.ReportAllocs()
	for b.Loop() {
		in.Scope = scope("n05000")
		if out := Decide(in); len(out.Nodes) != 0 || len(out.Awake.Nodes) != 0 {
			b.Fatalf("%d nodes changed and %d are awake, want none", len(out.Nodes), len(out.Awake.Nodes))
		}
	}
}
