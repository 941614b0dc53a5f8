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
	"fmt"
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

// What the advice is called.
const (
	GatherWrites = "gather-writes"
	BufferReads  = "buffer-reads"
	FewerFiles   = "fewer-files"
	GroupSyncs   = "group-syncs"
	NoSeeks      = "no-seeks"
	NoReadAhead  = "no-read-ahead"
)

// Below so many calls nothing is worth a change.
const worthwhile = 100

// rule looks at the sums of a pattern; ok is false where it does not apply.
type rule func(p profiling.Pattern) (advice profiling.Advice, ok bool)

var rules = []rule{gatherWrites, bufferReads, fewerFiles, groupSyncs, noSeeks, noReadAhead}

func Advise(all []profiling.Pattern) []profiling.Pattern {
	out := make([]profiling.Pattern, len(all))
	for i, p := range all {
		p.Advice = nil
		for _, r := range rules {
			if advice, ok := r(p); ok {
				p.Advice = append(p.Advice, advice)
			}
		}
		out[i] = p
	}
	return out
}

func gatherWrites(p profiling.Pattern) (profiling.Advice, bool) {
	if p.Behaviour != SmallAppends {
		return profiling.Advice{}, false
	}
	saved := fewer(p.Write, p.Files)
	return profiling.Advice{
		What: GatherWrites, CallsSaved: saved,
		Why: fmt.Sprintf("%d writes of %d bytes on average follow each other in %s; a kernel that gathers them to pages of %d bytes, "+
			"or a buffer in the program, makes %d of them",
			p.Write.Calls, mean(p.Write), files(p.Files), profiling.SmallBytes, p.Write.Calls-saved),
	}, saved >= worthwhile
}

func bufferReads(p profiling.Pattern) (profiling.Advice, bool) {
	if p.Behaviour != SmallReads {
		return profiling.Advice{}, false
	}
	saved := fewer(p.Read, p.Files)
	return profiling.Advice{
		What: BufferReads, CallsSaved: saved,
		Why: fmt.Sprintf("%d reads of %d bytes on average follow each other in %s; with a buffer of %d bytes in the program they are %d",
			p.Read.Calls, mean(p.Read), files(p.Files), profiling.SmallBytes, p.Read.Calls-saved),
	}, saved >= worthwhile
}

func fewerFiles(p profiling.Pattern) (profiling.Advice, bool) {
	if p.Behaviour != OneSmallWrite {
		return profiling.Advice{}, false
	}
	return profiling.Advice{
		What: FewerFiles,
		Why: fmt.Sprintf("%d files of %d bytes on average: to make each costs more than to write it; one file for all, "+
			"or a file system in memory until the job ends", p.Files, mean(p.Write)),
	}, p.Files >= worthwhile
}

func groupSyncs(p profiling.Pattern) (profiling.Advice, bool) {
	return profiling.Advice{
		What: GroupSyncs, CallsSaved: p.Syncs - min(p.Files, p.Syncs),
		Why: fmt.Sprintf("%d syncs for %d writes: each waits for the disk; one at the end of each file is %d",
			p.Syncs, p.Write.Calls, p.Files),
	}, p.Behaviour == SyncedWrites && p.Syncs >= worthwhile
}

func noSeeks(p profiling.Pattern) (profiling.Advice, bool) {
	return profiling.Advice{
		What: NoSeeks, CallsSaved: p.IdleSeeks,
		Why: fmt.Sprintf("%d of %d seeks lead to where the file is already; a library that remembers its position needs none of them",
			p.IdleSeeks, p.Seeks),
	}, p.IdleSeeks >= worthwhile
}

func noReadAhead(p profiling.Pattern) (profiling.Advice, bool) {
	return profiling.Advice{
		What: NoReadAhead,
		Why: fmt.Sprintf("%d reads in no order: what the kernel reads ahead is thrown away; switch it off for these files",
			p.Read.Calls),
	}, (p.Behaviour == RandomReads || p.Behaviour == SmallLookups) && p.Read.Calls >= worthwhile
}

// fewer is how many calls go away if bytes move in full pages, at least one
// call a file.
func fewer(t profiling.Traffic, files uint64) uint64 {
	need := max((t.Bytes+profiling.SmallBytes-1)/profiling.SmallBytes, files)
	return t.Calls - min(need, t.Calls)
}

func mean(t profiling.Traffic) uint64 {
	if t.Moved() == 0 {
		return 0
	}
	return t.Bytes / t.Moved()
}

func files(n uint64) string {
	if n == 1 {
		return "one file"
	}
	return fmt.Sprintf("%d files", n)
}
