// SPDX-License-Identifier: Apache-2.0

package profiling

import (
	"cmp"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/addup"
)

// MostSlow is how many single calls of a name a result has.
const MostSlow = 8

// UnknownFile is the file of a call that has one, when nobody could find out
// which: it was closed meanwhile, or its path was gone from memory.
const UnknownFile = "[unknown]"

// SlowCall is one of the slowest single calls of its name.
type SlowCall struct {
	Name string `json:"name"`
	Node string `json:"node"`
	// PID is the process, TID the thread in it, and Program the thread's name.
	PID     uint32 `json:"pid" sum:"-"`
	TID     uint32 `json:"tid" sum:"-"`
	Program string `json:"program"`
	// At is when the call began, by the clock of its node's begin.
	At     time.Time `json:"at" sum:"-"`
	NS     uint64    `json:"ns" sum:"-"`
	Failed bool      `json:"failed"`
	// Bytes that it moved; absent if it moves none.
	Bytes *uint64 `json:"bytes,omitempty" sum:"-"`
	// File is the path as it was opened or asked for, or the last name alone; the
	// kind in brackets if it has no name, and empty for calls without a file.
	File string `json:"file"`
	// Device and Inode of the file, if it was open at the call's end.
	Device string `json:"device,omitempty"`
	Inode  uint64 `json:"inode,omitempty" sum:"-"`
	// Split has the parts that are not zero.
	Split map[Cause]Part `json:"split" sum:"-"`
}

// SortSlowest puts the slowest first, in one order whatever the order was.
func SortSlowest(all []SlowCall) {
	slices.SortFunc(all, func(a, b SlowCall) int {
		return cmp.Or(cmp.Compare(b.NS, a.NS), a.At.Compare(b.At), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Node, b.Node),
			cmp.Compare(a.PID, b.PID), cmp.Compare(a.TID, b.TID), cmp.Compare(a.Program, b.Program), cmp.Compare(a.File, b.File))
	})
}

// Slow are the slowest calls, at most so many of each name.
func (s *Syscalls) Slow(most int) []SlowCall {
	seen := map[string]int{}
	return slices.DeleteFunc(slices.Clone(s.Slowest), func(c SlowCall) bool {
		seen[c.Name]++
		return seen[c.Name] > most
	})
}

// Sum is what two nodes found: of each name the slowest calls of both.
func (s *Syscalls) Sum(other *Syscalls) *Syscalls {
	type figures Syscalls
	sum := Syscalls(addup.Plus(figures(*s), figures(*other)))
	sum.Sort()
	sum.Slowest = sum.Slow(MostSlow)
	return &sum
}

// NameSlowCalls gives slow calls the whole path of their file, where the io
// collector saw it opened.
func (r *Result) NameSlowCalls() {
	if r.IO == nil || r.Syscalls == nil {
		return
	}
	type inode struct {
		node, device string
		number       uint64
		name         string
	}
	paths := map[inode]string{}
	for _, f := range r.IO.Files {
		if f.WholePath {
			paths[inode{f.Node, f.Device, f.Inode, path.Base(f.Path)}] = f.Path
		}
	}
	for i, c := range r.Syscalls.Slowest {
		// A number may belong to another file by now; that it has the same name is unlikely.
		whole := paths[inode{c.Node, c.Device, c.Inode, path.Base(c.File)}]
		if whole != "" && !strings.HasPrefix(c.File, "/") {
			r.Syscalls.Slowest[i].File = whole
		}
	}
}
