// SPDX-License-Identifier: Apache-2.0

package slurm

import (
	"bytes"
	"hash/maphash"
	"maps"
	"sync"
	"unique"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/scontrol"
)

// rows are the nodes' lines as they were read last. A line that slurmctld prints again is not read again: of thousands of
// nodes few change between two polls.
type rows struct {
	seed  maphash.Seed
	mu    sync.Mutex
	known map[string]readRow // by node
}

// readRow is a node as it was read of a line with this checksum.
type readRow struct {
	sum  uint64
	node kb.SlurmNode
}

func newRows() *rows { return &rows{seed: maphash.MakeSeed(), known: map[string]readRow{}} }

// rowStart is what a node's line begins with; further lines of its texts do not.
var rowStart = []byte("NodeName=")

// read returns the node of a line. It keeps nothing of the line itself.
func (r *rows) read(line []byte) (kb.SlurmNode, bool) {
	name, is := bytes.CutPrefix(line, rowStart)
	if !is {
		return kb.SlurmNode{}, false
	}
	name = name[:max(0, bytes.IndexByte(name, ' '))]
	sum := maphash.Bytes(r.seed, line)
	r.mu.Lock()
	defer r.mu.Unlock()
	if was, known := r.known[string(name)]; known && was.sum == sum {
		return was.node, true
	}
	node, ok := scontrol.ParseNode(string(line))
	if ok {
		node = compact(node)
		r.known[node.Name] = readRow{sum, node}
	}
	return node, ok
}

// keep forgets all other nodes.
func (r *rows) keep(nodes map[string]kb.SlurmNode) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.known) > len(nodes) {
		maps.DeleteFunc(r.known, func(name string, _ readRow) bool { _, is := nodes[name]; return !is })
	}
}

// size is how many nodes are known.
func (r *rows) size() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.known)
}

// compact has equal words of thousands of nodes in memory once, and the line not at all.
func compact(n kb.SlurmNode) kb.SlurmNode {
	one := func(word *string) { *word = unique.Make(*word).Value() }
	for _, word := range []*string{&n.Name, &n.State, &n.Reason, &n.By} {
		one(word)
	}
	for _, words := range [][]string{n.Flags, n.Partitions, n.Features, n.Available} {
		for i := range words {
			one(&words[i])
		}
	}
	return n
}
