// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/graph"
)

// StoreIn is the place of results in a cache folder.
func StoreIn(cache string) graph.Store { return graph.Store{Dir: filepath.Join(cache, "graph")} }

// CandidatesIn is the place of candidates in a cache folder.
func CandidatesIn(cache string) Candidates {
	return Candidates{Dir: filepath.Join(cache, "candidates")}
}

// Build does what is left to do for the kernel and returns what it became. With
// a step named it stops after that one, and there is no candidate. A kernel that
// does not do what it has to is a candidate that failed, and no error.
func (p *Pipeline) Build(ctx context.Context, runner *graph.Runner, until ...string) (*Candidate, error) {
	g, err := p.Graph()
	if err != nil {
		return nil, err
	}
	p.made = nil
	_, err = runner.Run(ctx, p.Recipe.Name, g, until...)
	found, rest := faults(err)
	for _, fault := range found {
		failed, err := p.blame(fault)
		rest = errors.Join(rest, err)
		p.made = &failed
	}
	return p.made, rest
}

// ErrNeedsRun is in the error about a recipe that cannot be followed without
// running a kernel.
var ErrNeedsRun = errors.New("needs a run of its workload: kernelctl kernel build")
