// SPDX-License-Identifier: Apache-2.0

// Package explain says in words what a job waits for: a turn, a boot, another job's return, or Slurm.
package explain

import (
	"fmt"
	"slices"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// Facts are what is known of a job and of the nodes around it.
type Facts struct {
	Job kb.SlurmJob
	// Allocation is the job's, nil if it asked for no kernel or has not begun.
	Allocation *kb.Allocation
	// Ahead is how many jobs get their kernels first; -1 if the job waits for no turn.
	Ahead int
	// Returning nodes go back to stock, and their jobs have ended.
	Returning []Node
}

// Node is on its way to a kernel.
type Node struct {
	Name       string
	Partitions []string
	Since      time.Time
}

// Answer to why a job waits.
type Answer struct {
	Job kb.SlurmJob
	// Waits has one line for each thing that it waits for; none if it waits for nothing.
	Waits []string
	// Nodes that it waits for.
	Nodes []Node
}

// Job says what a job waits for.
func Job(f Facts) Answer {
	answer := Answer{Job: f.Job}
	switch a := f.Allocation; {
	case f.Job.State == "PENDING":
		answer.pending(f)
	case f.Ahead >= 0:
		answer.Waits = []string{fmt.Sprintf("its turn: %d jobs get their kernels first, as many at a time as switch.at_once of broker.yaml allows", f.Ahead)}
	case a != nil && a.Phase == kb.PhaseFailed:
		answer.Waits = []string{"Slurm to take it off its nodes: " + a.Reason}
	case a != nil && (a.Phase == kb.PhaseAccepted || a.Phase == kb.PhaseSwitching):
		answer.switching(*a)
	case f.Job.State == "CONFIGURING":
		answer.Waits = []string{"Slurm to boot its nodes or to end their prologs"}
	}
	return answer
}

func (w *Answer) pending(f Facts) {
	mine := f.Job.Partitions()
	for _, n := range f.Returning {
		if f.Job.Pending() && slices.ContainsFunc(n.Partitions, func(p string) bool { return slices.Contains(mine, p) }) {
			w.Nodes = append(w.Nodes, n)
		}
	}
	if n := len(w.Nodes); n > 0 {
		w.Waits = append(w.Waits, fmt.Sprintf("nodes that return to stock after other jobs and that it may get: %d", n))
	}
	switch {
	case f.Job.HeldByUser():
		w.Waits = append(w.Waits, "a release by its user: scontrol release "+f.Job.Reference)
	case f.Job.HeldByAdministrator():
		w.Waits = append(w.Waits, "a release by an administrator, who holds it")
	default:
		w.Waits = append(w.Waits, "Slurm, whose reason is "+f.Job.Reason)
	}
}

func (w *Answer) switching(a kb.Allocation) {
	for _, name := range a.Nodes {
		if _, proven := a.During[name]; !proven && !slices.Contains(a.Left, name) {
			w.Nodes = append(w.Nodes, Node{Name: name, Since: a.Since})
		}
	}
	ref := a.Kernel.Ref()
	if len(w.Nodes) == 0 || a.Brief {
		w.Nodes, w.Waits = nil, []string{fmt.Sprintf("the last of its nodes to be registered in Slurm on %s", ref)}
		return
	}
	w.Waits = []string{fmt.Sprintf("%d of its %d nodes to run %s", len(w.Nodes), len(a.Nodes), ref)}
}
