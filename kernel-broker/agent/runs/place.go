// SPDX-License-Identifier: Apache-2.0

package runs

import (
	"context"
	"fmt"
	"time"
)

// placeLimit is how long a run waits for the place of one whose job has ended: collectors take seconds to detach.
const placeLimit = 5 * time.Second

// place takes one of the node's places for runs: each has maps and clocks of its own, which are no job's to pay for.
func (r *run) place() error {
	for limit := time.Now().Add(placeLimit); ; {
		free, soon := r.k.takePlace(r)
		if free {
			return nil
		}
		if !soon || time.Now().After(limit) {
			return fmt.Errorf("profiling is not available: %s already profiles as many jobs as it may, %d (profiling.max_runs of agent.yaml); "+
				"submit the job again later, or with --exclusive", r.k.o.Node, r.k.o.MaxRuns)
		}
		select {
		case <-r.ctx.Done():
			return context.Cause(r.ctx)
		case <-time.After(checkEvery):
		}
	}
}

// takePlace reports whether the run has a place now, or soon may: a job has ended.
func (k *Keeper) takePlace(r *run) (free, soon bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.o.MaxRuns == 0 || len(k.placed) < k.o.MaxRuns {
		k.placed[r] = true
		return true, true
	}
	for other := range k.placed {
		soon = soon || other.now().Ended || other.ctx.Err() != nil
	}
	return false, soon
}

func (k *Keeper) freePlace(r *run) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.placed, r)
}
