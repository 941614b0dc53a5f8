// SPDX-License-Identifier: Apache-2.0

package patterns

import (
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
)

// The behaviours, as the first column of a report has them.
const (
	// MappedOnly files are read or written through memory, which no call shows.
	MappedOnly = "mapped into memory"
	OpenedOnly = "opened only"
	// SyncedWrites come to the disk one by one.
	SyncedWrites = "writes, each synced"
	// OneSmallWrite is a file made by a single short write.
	OneSmallWrite = "one small write"
	SmallAppends  = "small writes in order"
	SmallScatter  = "small writes here and there"
	BlockWrites   = "writes in order"
	ScatterWrites = "writes here and there"
	SmallReads    = "small reads in order"
	SmallLookups  = "small reads here and there"
	BlockReads    = "reads in order"
	RandomReads   = "reads here and there"
	ReadsWrites   = "reads and writes"
)

// What counts as in order, as mixed, and as synced.
const (
	orderly    = 0.9
	mixedShare = 0.1
	syncedPer  = 0.5
)

// Behaviour names how a file is used.
func Behaviour(f profiling.File) string {
	reads, writes := f.Read.Calls, f.Write.Calls
	switch {
	case reads+writes == 0 && f.Maps > 0:
		return MappedOnly
	case reads+writes == 0:
		return OpenedOnly
	case rare(writes, reads):
		return reading(f.Read)
	case rare(reads, writes):
		return writing(f)
	}
	return ReadsWrites
}

// rare: the first are few beside the second.
func rare(few, many uint64) bool {
	return float64(few) < mixedShare*float64(few+many)
}

func writing(f profiling.File) string {
	w := f.Write
	small := mostlySmall(w)
	switch {
	case w.Calls > 1 && float64(f.Syncs) >= syncedPer*float64(w.Calls):
		return SyncedWrites
	case w.Calls == 1 && small:
		return OneSmallWrite
	case small && inOrder(w):
		return SmallAppends
	case small:
		return SmallScatter
	case inOrder(w):
		return BlockWrites
	}
	return ScatterWrites
}

func reading(r profiling.Traffic) string {
	small := mostlySmall(r)
	switch {
	case small && inOrder(r):
		return SmallReads
	case small:
		return SmallLookups
	case inOrder(r):
		return BlockReads
	}
	return RandomReads
}

func mostlySmall(t profiling.Traffic) bool { return 2*t.Small > t.Calls }

func inOrder(t profiling.Traffic) bool {
	return float64(t.Sequential) >= orderly*float64(t.Moved())
}
