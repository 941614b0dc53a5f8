// SPDX-License-Identifier: Apache-2.0

package slim

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Coverage says how much of an object ran.
type Coverage int

const (
	// NoCode: data only, so a trace cannot judge it.
	NoCode Coverage = iota
	// Cold: not one instruction ran.
	Cold
	// Started: nothing ran but what runs once at boot and is thrown away then.
	// It announced itself and was never asked again.
	Started
	// Warm: it ran, but not while the workload did.
	Warm
	// Hot: it ran for the workload, or for an unknown purpose.
	Hot
)

// Warmest is the coverage up to which an object may go: what ran at boot goes too
// if the workload did not need it, as the boot test and the keep-lists have the
// last word.
const Warmest = Warm

func (h Coverage) String() string {
	names := [...]string{"no code", "cold", "started", "warm", "hot"}
	if h < 0 || int(h) >= len(names) {
		return fmt.Sprintf("coverage %d", int(h))
	}
	return names[h]
}

// MarshalText gives reports the word and not the number.
func (h Coverage) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UnmarshalText reads that word.
func (h *Coverage) UnmarshalText(text []byte) error {
	for one := NoCode; one <= Hot; one++ {
		if one.String() == string(text) {
			*h = one
			return nil
		}
	}
	return fmt.Errorf("coverage %q is not known", text)
}

// Use is one object, what it weighs, and what of it ran.
type Use struct {
	Object   string   `json:"object"`
	Coverage Coverage `json:"heat"`
	// Bytes of code that stays, of code for the start, and of all the rest.
	Text  uint64 `json:"text"`
	Start uint64 `json:"start"`
	Data  uint64 `json:"data"`
	// Ran are the bytes of code that ran, at any time and for the workload.
	Ran     uint64 `json:"ran"`
	RanWork uint64 `json:"ran_work"`
	// Seen says which jobs' profiling runs saw it used, where the workload alone
	// would not have made it hot.
	Seen string `json:"seen,omitempty"`
}

// Code in bytes, of both kinds.
func (u Use) Code() uint64 { return u.Text + u.Start }

// Uses of all objects by path.
type Uses map[string]Use

// Measure lays a run over a link map. The workload's own part of the run may
// be nil when it is not known: then all that ran counts as hot.
func Measure(pieces []Piece, run, work Spans) Uses {
	uses := Uses{}
	started := map[string]uint64{}
	for _, piece := range pieces {
		use := uses[piece.Object]
		use.Object = piece.Object
		switch piece.Section {
		case ".text":
			use.Text += piece.Size
			use.Ran += run.In(piece.Begin, piece.end())
			use.RanWork += work.In(piece.Begin, piece.end())
		case ".init.text":
			use.Start += piece.Size
			started[piece.Object] += run.In(piece.Begin, piece.end())
		case ".exit.text", ".comment", ".debug_info":
			// Neither runs nor takes room in a kernel that was started.
		default:
			if piece.Begin >= kernelHalf || piece.Section == ".data..percpu" {
				use.Data += piece.Size
			}
		}
		uses[piece.Object] = use
	}
	for object, use := range uses {
		use.Coverage = coverageOf(use, started[object], work != nil)
		uses[object] = use
	}
	return uses
}

func coverageOf(use Use, started uint64, workKnown bool) Coverage {
	switch {
	case use.Code() == 0:
		return NoCode
	case use.Ran == 0 && started == 0:
		return Cold
	case use.Ran == 0:
		return Started
	case workKnown && use.RanWork == 0:
		return Warm
	}
	return Hot
}

// Sum counts objects and their code bytes by coverage.
func (u Uses) Sum() map[Coverage]Sum {
	sums := map[Coverage]Sum{}
	for _, use := range u {
		sum := sums[use.Coverage]
		sum.Objects++
		sum.Code += use.Code()
		sums[use.Coverage] = sum
	}
	return sums
}

// Sum is a number of objects and their code in bytes.
type Sum struct {
	Objects int    `json:"objects"`
	Code    uint64 `json:"code"`
}

// sorted objects, the largest code first.
func (u Uses) sorted() []Use {
	return slices.SortedFunc(maps.Values(u), func(a, b Use) int {
		return cmp.Or(cmp.Compare(b.Code(), a.Code()), strings.Compare(a.Object, b.Object))
	})
}
