// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"time"
)

// askEvery is how often a node without a broker asks slurmctld.
const askEvery = 5 * time.Second

// registers is how long slurmctld may take to show that a slurmd has registered.
const registers = 3 * time.Second

// noBroker polls slurmctld while the broker is away: Slurm may wait for a boot
// of this node that the broker cannot arrange.
type noBroker struct {
	// since is when the broker was last there.
	since  time.Time
	next   time.Time
	asking bool
	asked  time.Time
	// started is when the agent last started slurmd: what slurmctld said of the node before it took that in is past.
	started time.Time
	answer  chan bool
}

func newNoBroker() noBroker { return noBroker{since: time.Now(), answer: make(chan bool, 1)} }

// askSlurm polls beside the loop, which slurmctld must not delay.
func (a *Agent) askSlurm(ctx context.Context, now time.Time) {
	l := &a.noBroker
	if a.observed.Fresh {
		l.since, a.observed.Awaited = now, false
		return
	}
	if a.parts.Awaited == nil || l.asking || now.Before(l.next) || now.Sub(l.since) < a.parts.Grace {
		return
	}
	l.asking, l.asked = true, now
	go func() {
		awaited, err := a.parts.Awaited(ctx)
		if err != nil {
			a.parts.Log.Warn("slurmctld not asked about this node", "node", a.parts.Node, "error", err)
		}
		l.answer <- awaited
	}()
}

func (a *Agent) slurmSaid(awaited bool, now time.Time) {
	a.noBroker.asking, a.noBroker.next = false, now.Add(askEvery)
	a.observed.Awaited = awaited && !a.observed.Fresh && a.noBroker.asked.Sub(a.noBroker.started) > registers
}

// end waits for an answer that is still to come.
func (l *noBroker) end() {
	if l.asking {
		<-l.answer
		l.asking = false
	}
}
