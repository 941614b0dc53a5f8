// SPDX-License-Identifier: Apache-2.0

package patterns

import (
	"path"
	"strings"

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

// Shape is a file's path with what counts taken out: runs of digits become *,
// also those in hexadecimal that hold a digit and are long enough to be an
// identifier.
func Shape(name string) string {
	dir, last := path.Split(name)
	var out strings.Builder
	for part := range strings.SplitSeq(dir, "/") {
		if part != "" {
			out.WriteByte('/')
			out.WriteString(mask(part))
		}
	}
	if dir != "" {
		out.WriteByte('/')
	}
	out.WriteString(mask(last))
	if dir != "" && dir[0] != '/' {
		return out.String()[1:]
	}
	return out.String()
}

// leastHex is the length from which hexadecimal digits are an identifier.
const leastHex = 8

func mask(text string) string {
	var out strings.Builder
	for at := 0; at < len(text); {
		if n := identifier(text[at:]); n > 0 && boundary(text, at) {
			out.WriteByte('*')
			at += n
			continue
		}
		if n := digits(text[at:]); n > 0 {
			out.WriteByte('*')
			at += n
			continue
		}
		out.WriteByte(text[at])
		at++
	}
	return out.String()
}

func digits(text string) int {
	n := 0
	for n < len(text) && text[n] >= '0' && text[n] <= '9' {
		n++
	}
	return n
}

// identifier is the length of a hexadecimal number that stands alone.
func identifier(text string) int {
	n, digit := 0, false
	for n < len(text) && strings.IndexByte("0123456789abcdefABCDEF", text[n]) >= 0 {
		digit = digit || text[n] <= '9'
		n++
	}
	if n < leastHex || !digit || n < len(text) && letter(text[n]) {
		return 0
	}
	return n
}

func boundary(text string, at int) bool { return at == 0 || !letter(text[at-1]) }

func letter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }
