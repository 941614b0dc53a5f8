// SPDX-License-Identifier: Apache-2.0

package patterns

import (
	"fmt"

	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
)

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

// Advise replaces the advice of each pattern.
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
