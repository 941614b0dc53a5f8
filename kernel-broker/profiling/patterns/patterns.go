// SPDX-License-Identifier: Apache-2.0

// Package patterns finds in what a job does to single files the few ways in
// which it does input and output, and says what each suggests.
//
// The idea: two files belong together if their names differ only in what
// counts (digits) and they are used alike. How a file is used is one of a
// handful of behaviours, each a rule on its counters, in an order in which the
// first that fits names it. Groups are sums, so they are made file by file, and
// a job with a million files needs no more memory than one with ten patterns.
// Advice rests on the sums alone and can be derived again after a merge.
package patterns

import (
	"path"
	"strings"

	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/addup"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
)

// MostGroups bounds how many groups an accumulator keeps. Files beyond it join
// the group of their behaviour with the shape Others.
const MostGroups = 1000

// Others is the shape of a group that is too full of different names.
const Others = "*"

type group struct{ behaviour, shape string }

// Accumulator makes patterns of files, one after the other. Its zero value is
// ready.
type Accumulator struct {
	groups map[group]*profiling.Pattern
}

// Add takes in one file. A file that was written in order and read in order
// belongs to two patterns, with what was done in each direction: a program made
// it and then used it.
func (a *Accumulator) Add(f profiling.File) {
	if Behaviour(f) != ReadsWrites || !inOrder(f.Read) || !inOrder(f.Write) {
		a.add(f)
		return
	}
	read := profiling.File{Path: f.Path, Read: f.Read}
	f.Read = profiling.Traffic{}
	a.add(f)
	a.add(read)
}

func (a *Accumulator) add(f profiling.File) {
	if a.groups == nil {
		a.groups = map[group]*profiling.Pattern{}
	}
	at := group{Behaviour(f), Shape(f.Path)}
	if a.groups[at] == nil && len(a.groups) >= MostGroups {
		at.shape = Others
	}
	p := a.groups[at]
	if p == nil {
		p = &profiling.Pattern{Behaviour: at.behaviour, Shape: at.shape}
		a.groups[at] = p
	}
	p.Files++
	p.Calls += f.Read.Calls + f.Write.Calls
	p.Bytes += f.Read.Bytes + f.Write.Bytes
	p.Read, p.Write = p.Read.Plus(f.Read), p.Write.Plus(f.Write)
	p.Opens += f.Opens
	p.Syncs += f.Syncs
	p.Seeks += f.Seeks
	p.IdleSeeks += f.IdleSeeks
	p.Maps += f.Maps
}

// Clone is a copy that goes its own way.
func (a *Accumulator) Clone() Accumulator {
	twin := Accumulator{groups: map[group]*profiling.Pattern{}}
	for at, p := range a.groups {
		one := *p
		twin.groups[at] = &one
	}
	return twin
}

// Patterns so far, those with most calls first. Groups of one behaviour whose
// files lie in one folder and end alike are one pattern: a program names its
// files by what is in them, T_001.data and S_001.data.
func (a *Accumulator) Patterns() []profiling.Pattern {
	kinds := map[group]int{}
	for at := range a.groups {
		kinds[group{at.behaviour, family(at.shape)}]++
	}
	var all []profiling.Pattern
	for at, p := range a.groups {
		one := *p
		if wide := family(at.shape); kinds[group{at.behaviour, wide}] > 1 {
			one.Shape = wide
		}
		all = append(all, one)
	}
	all = addup.Plus(all, nil)
	profiling.SortPatterns(all)
	return Advise(all)
}

// family is a shape with the last name's stem left out. A name without an
// ending has no family: nothing says that such files belong together.
func family(shape string) string {
	dir, last := path.Split(shape)
	at := strings.LastIndexByte(last, '.')
	if at <= 0 || last[at:] == "." || strings.Contains(last[at:], "*") {
		return shape
	}
	return dir + "*" + last[at:]
}
