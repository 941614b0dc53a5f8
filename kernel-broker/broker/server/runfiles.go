// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"sync"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/limit"
)

// What one node may put into the store for one run. A delivery is at most four
// files and MaxBytes; an agent that was restarted may make them once more.
const (
	maxRunUploads = 8
	runTimes      = 2
	// uploadsOfNode at a time: an agent sends one file after the other. Two runs
	// that end together take turns.
	uploadsOfNode = 1
	runUploadWait = 5 * time.Second
)

// runFiles counts what nodes upload before they deliver it: the files of a
// delivery are looked at as a whole only then, and a node may never come to it.
type runFiles struct {
	most    uint64 // bytes of one node in one run
	awaits  func(node string, run uint64) error
	uploads *limit.Semaphore

	mu sync.Mutex
	of map[runNode]map[string]uint64 // sizes, by digest
}

type runNode struct {
	run  uint64
	node string
}

// newRunFiles lets a delivery have maxBytes, and nodes so many uploads at a time
// in all; 0 stands for no end of them.
func newRunFiles(maxBytes uint64, uploads int, awaits func(node string, run uint64) error) *runFiles {
	return &runFiles{most: maxBytes * runTimes, awaits: awaits, uploads: limit.NewSemaphore(uploads), of: map[runNode]map[string]uint64{}}
}

// take counts a file and takes a place for its upload. The same file again, as
// after a break, is counted once.
func (f *runFiles) take(run uint64, node, digest string, size uint64) (free func(), err error) {
	if err := f.count(runNode{run, node}, digest, size); err != nil {
		return nil, err
	}
	if free = f.uploads.TryAcquire(node, uploadsOfNode); free == nil {
		own, all := f.uploads.Held(node)
		return nil, retryIn(runUploadWait, "run %d: node %q has %d uploads under way and all nodes have %d, which is the most", run, node, own, all)
	}
	return free, nil
}

func (f *runFiles) count(key runNode, digest string, size uint64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	files := f.of[key]
	if files == nil {
		f.forgetLocked()
		files = map[string]uint64{}
		f.of[key] = files
	}
	_, again := files[digest]
	if !again && len(files) == maxRunUploads {
		return fmt.Errorf("run %d: node %q has uploaded %d files already, which is the most of one run: %w", key.run, key.node, len(files), kb.ErrFailedPrecondition)
	}
	total := max(size, files[digest])
	for other, bytes := range files {
		if other != digest {
			total += bytes
		}
	}
	if total > f.most {
		return fmt.Errorf("run %d: the files of node %q would have %d bytes, at most %d are allowed in one run: %w", key.run, key.node, total, f.most, kb.ErrFailedPrecondition)
	}
	files[digest] = max(size, files[digest])
	return nil
}

// forgetLocked drops what is of nodes and runs of which nothing is awaited any more.
func (f *runFiles) forgetLocked() {
	for key := range f.of {
		if f.awaits(key.node, key.run) != nil {
			delete(f.of, key)
		}
	}
}

// delivered ends the count: what is stored is the run's now.
func (f *runFiles) delivered(run uint64, node string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.of, runNode{run, node})
}
