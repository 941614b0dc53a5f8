// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"cmp"
	"slices"

	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/collect/bpf"
)

// Attached is the part of a Session that all collectors of BPF programs have
// alike.
type Attached struct {
	Programs *bpf.Programs
}

// Missing parts, by name.
func (a Attached) Missing() []Missing {
	var all []Missing
	for part, why := range a.Programs.Missing() {
		all = append(all, Missing{Part: part, Why: why})
	}
	slices.SortFunc(all, func(a, b Missing) int { return cmp.Compare(a.Part, b.Part) })
	return all
}

// Spent by all programs.
func (a Attached) Spent() (Cost, error) {
	runs, ns, err := a.Programs.Spent()
	return Cost{Runs: runs, NS: ns}, err
}

// Pause suspends the programs; see bpf.Programs.
func (a Attached) Pause() error { return a.Programs.Pause() }

// Detach them for the pause.
func (a Attached) Detach() error { return a.Programs.Detach() }

// Resume ends a pause.
func (a Attached) Resume() error { return a.Programs.Resume() }

// Stop detaches the programs.
func (a Attached) Stop() error { return a.Programs.Stop() }

// Close releases the programs and their maps.
func (a Attached) Close() error { return a.Programs.Close() }
