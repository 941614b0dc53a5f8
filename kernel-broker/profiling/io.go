// SPDX-License-Identifier: Apache-2.0

package profiling

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/addup"
)

// MostFiles is how many files a result names; what lies beyond it is in the
// patterns and in the totals only.
const MostFiles = 10000

// SmallBytes is the size below which a call does not move a page.
const SmallBytes = 4096

// Traffic is one direction of one file, or of many.
type Traffic struct {
	Calls uint64 `json:"calls"`
	Bytes uint64 `json:"bytes"`
	// Failed calls moved nothing and gave an error; Nothing counts reads at the
	// end of a file.
	Failed  uint64 `json:"failed"`
	Nothing uint64 `json:"nothing"`
	// Cut calls moved less than was asked for, but not nothing.
	Cut uint64 `json:"cut"`
	// Small calls asked for less than SmallBytes.
	Small uint64 `json:"small"`
	// Sequential calls began where the one before ended, or at the start.
	Sequential uint64 `json:"sequential"`
	// Least and Most bytes that one call moved, those that moved none apart.
	Least uint64 `json:"least" sum:"least"`
	Most  uint64 `json:"most" sum:"max"`
	// Sizes has the calls by the bytes that they moved.
	Sizes Histogram `json:"sizes"`
}

// Moved counts the calls that moved something.
func (t Traffic) Moved() uint64 {
	if none := t.Failed + t.Nothing; none < t.Calls {
		return t.Calls - none
	}
	return 0
}

// Plus is what addup.Plus is, several times as fast: a collector adds up ten thousand files a second while a job is
// watched.
func (t Traffic) Plus(other Traffic) Traffic {
	least := max(t.Least, other.Least)
	if t.Least != 0 && other.Least != 0 {
		least = min(t.Least, other.Least)
	}
	return Traffic{
		Calls: t.Calls + other.Calls, Bytes: t.Bytes + other.Bytes, Failed: t.Failed + other.Failed,
		Nothing: t.Nothing + other.Nothing, Cut: t.Cut + other.Cut, Small: t.Small + other.Small,
		Sequential: t.Sequential + other.Sequential, Least: least, Most: max(t.Most, other.Most),
		Sizes: t.Sizes.Plus(other.Sizes),
	}
}

// File is what was done to one regular file on one node. A file of a shared
// file system is one for each node that used it.
type File struct {
	Node string `json:"node"`
	// Path as it was opened, or the last name alone if it was open before the
	// collector came; then WholePath is false.
	Path      string `json:"path"`
	WholePath bool   `json:"whole_path"`
	// FileSystem is the type's name, or its number if it is an unusual one.
	FileSystem string `json:"file_system"`
	Device     string `json:"device"`
	Inode      uint64 `json:"inode" sum:"-"`
	// Size in bytes when it was last touched.
	Size  uint64  `json:"size" sum:"-"`
	Opens uint64  `json:"opens"`
	Read  Traffic `json:"read"`
	Write Traffic `json:"write"`
	Syncs uint64  `json:"syncs"`
	Seeks uint64  `json:"seeks"`
	// IdleSeeks led to where the file's position was already.
	IdleSeeks uint64 `json:"idle_seeks"`
	// Maps counts mappings into memory; what is read or written through them
	// is no call and is not seen.
	Maps uint64 `json:"maps"`
}

// Total is all of one kind: regular files, or pipes, sockets, terminals.
type Total struct {
	Kind  string  `json:"kind" sum:"key"`
	Read  Traffic `json:"read"`
	Write Traffic `json:"write"`
}

// RegularFiles is the kind of total that the files are in.
const RegularFiles = "file"

// kinds of inodes by the four bits of their mode.
var kinds = map[int]string{
	0: "anonymous", 1: "pipe", 2: "character device", 4: "folder", 6: "block device", 8: RegularFiles, 10: "link", 12: "socket",
}

// InodeKind is the kind of an inode with these four bits of its mode.
func InodeKind(number int) string {
	if known := kinds[number]; known != "" {
		return known
	}
	return fmt.Sprintf("type %d", number)
}

// Device in text, of the kernel's own number.
func Device(number uint32) string {
	const minorBits = 20
	return fmt.Sprintf("%d:%d", number>>minorBits, number&(1<<minorBits-1))
}

// Pattern is a group of files that are used alike.
type Pattern struct {
	// Behaviour says how, Shape which files: their names with what varies
	// replaced by *.
	Behaviour string   `json:"behaviour" sum:"key"`
	Shape     string   `json:"shape" sum:"key"`
	Files     uint64   `json:"files" sum:"seen"`
	Bytes     uint64   `json:"bytes"`
	Calls     uint64   `json:"calls"`
	Read      Traffic  `json:"read"`
	Write     Traffic  `json:"write"`
	Opens     uint64   `json:"opens"`
	Syncs     uint64   `json:"syncs"`
	Seeks     uint64   `json:"seeks"`
	IdleSeeks uint64   `json:"idle_seeks"`
	Maps      uint64   `json:"maps"`
	Advice    []Advice `json:"advice" sum:"void"`
}

// Advice is a specialisation that a pattern suggests.
type Advice struct {
	// What is a short name of it, Why explains it.
	What string `json:"what"`
	Why  string `json:"why"`
	// CallsSaved is how many calls into the file system it could save.
	CallsSaved uint64 `json:"calls_saved"`
}

// IO is what the collector of that name found.
type IO struct {
	Totals   []Total   `json:"totals"`
	Patterns []Pattern `json:"patterns"`
	Files    []File    `json:"files"`
	// FilesLeftOut are in patterns and totals, but not among Files.
	FilesLeftOut uint64 `json:"files_left_out" sum:"seen"`
	// Overflow are calls on files that found no room in the kernel: they are
	// in Totals, but in no pattern.
	Overflow Total `json:"overflow"`
}

// Total of one kind; zero if there is none.
func (io *IO) Total(kind string) Total {
	for _, t := range io.Totals {
		if t.Kind == kind {
			return t
		}
	}
	return Total{Kind: kind}
}

// Sort puts what was used most first.
func (io *IO) Sort() {
	slices.SortFunc(io.Totals, func(a, b Total) int { return cmp.Compare(a.Kind, b.Kind) })
	slices.SortFunc(io.Files, func(a, b File) int {
		return cmp.Or(cmp.Compare(b.calls(), a.calls()), cmp.Compare(b.bytes(), a.bytes()),
			cmp.Compare(a.Path, b.Path), cmp.Compare(a.Node, b.Node), cmp.Compare(a.Device, b.Device), cmp.Compare(a.Inode, b.Inode))
	})
	SortPatterns(io.Patterns)
}

// Bound keeps the files that were used most.
func (io *IO) Bound(most int) {
	io.Files = slices.Clone(io.Files)
	io.Totals = slices.Clone(io.Totals)
	io.Patterns = slices.Clone(io.Patterns)
	io.Sort()
	if over := len(io.Files) - most; over > 0 {
		io.FilesLeftOut += uint64(over)
		io.Files = io.Files[:most]
	}
}

func (f File) calls() uint64 { return f.Read.Calls + f.Write.Calls }
func (f File) bytes() uint64 { return f.Read.Bytes + f.Write.Bytes }

// AddTotal adds to the total of that kind.
func (io *IO) AddTotal(t Total) {
	io.Totals = addup.Plus(io.Totals, []Total{t})
}

// SortPatterns puts those with most calls first.
func SortPatterns(all []Pattern) {
	slices.SortFunc(all, func(a, b Pattern) int {
		return cmp.Or(cmp.Compare(b.Calls, a.Calls), cmp.Compare(b.Bytes, a.Bytes),
			cmp.Compare(a.Behaviour, b.Behaviour), cmp.Compare(a.Shape, b.Shape))
	})
}
