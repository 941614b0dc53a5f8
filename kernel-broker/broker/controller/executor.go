// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/plan"
)

// executor carries out actions, several at a time. Two that touch the same
// node or the same job keep the order in which they were asked for; nothing
// else waits for a slow one. An action that is asked for again while it waits,
// or soon after it was done, is not repeated: what it brought about needs time
// to be seen.
type executor struct {
	c    *Controller
	wake chan struct{} // something waits, or somebody is free
	// Below: the controller's lock is held.
	queue   []plan.Action  // that wait, oldest first
	busy    map[string]int // lanes that are in use
	waiting map[string]bool
	again   map[string]time.Time
	failed  map[string]int
	workers [classes]int
}

const (
	maxQueue   = 1024
	quietTime  = 700 * time.Millisecond
	maxBackoff = 15 * time.Second
	remembered = time.Minute
)

// Classes of actions, each with workers of its own: however many nodes hang at
// once, arming does not wait for resets, which may take half a minute each.
const (
	commands = iota // to slurmctld and to the catalog
	resets
	classes
)

// maxWorkers bounds what is under way: slurmctld takes its locks for each
// command, and a power network is no faster for being asked more at once.
var maxWorkers = [classes]int{commands: 6, resets: 4}

func newExecutor(c *Controller) *executor {
	return &executor{c: c, wake: make(chan struct{}, 1), busy: map[string]int{},
		waiting: map[string]bool{}, again: map[string]time.Time{}, failed: map[string]int{}}
}

func classOf(a plan.Action) int {
	if a.Kind == plan.ResetNode || a.Kind == plan.RebootNode {
		return resets
	}
	return commands
}

// lanes are what an action must not be overtaken on. A reset goes past
// slurmctld, so that what is asked of slurmctld for the node need not wait.
func lanes(a plan.Action) []string {
	if classOf(a) == resets {
		return []string{"reset " + a.Node}
	}
	var list []string
	kind := "node "
	if a.Kind == plan.SetFeatures {
		kind = "features " // no boot waits for what is only shown
	}
	for _, node := range append([]string{a.Node}, a.Nodes...) {
		if node != "" {
			list = append(list, kind+node)
		}
	}
	reference := a.Reference
	if a.Kind == plan.DropReservation {
		reference = strings.TrimPrefix(a.Text, kb.ReservationPrefix)
	}
	if reference != "" {
		list = append(list, "job "+reference)
	}
	return list
}

// submit queues an action; the controller's lock is held. A full queue drops
// it: it will be asked for again.
func (e *executor) submit(a plan.Action) {
	key := a.Key()
	if e.waiting[key] || time.Now().Before(e.again[key]) || len(e.queue) >= maxQueue {
		return
	}
	e.queue = append(e.queue, a)
	e.waiting[key] = true
	e.signal()
}

func (e *executor) signal() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// underWay reports whether anything is to be done or being done; the
// controller's lock is held.
func (e *executor) underWay() bool { return len(e.waiting) > 0 }

// run works until the context ends, and returns when every worker has.
func (e *executor) run(ctx context.Context) {
	var group sync.WaitGroup
	defer group.Wait()
	for ctx.Err() == nil {
		for a, ok := e.take(ctx); ok; a, ok = e.take(ctx) {
			group.Go(func() { e.do(ctx, a) })
		}
		select {
		case <-ctx.Done():
		case <-e.wake:
		}
	}
}

// take picks the oldest action that has a worker and that overtakes nothing on
// its lanes. Once the context has ended it picks none: what waited for an
// action that the end broke off is not begun.
func (e *executor) take(ctx context.Context) (plan.Action, bool) {
	e.c.mu.Lock()
	defer e.c.mu.Unlock()
	if ctx.Err() != nil {
		return plan.Action{}, false
	}
	before := map[string]bool{}
	for i, a := range e.queue {
		list := lanes(a)
		blocked := e.workers[classOf(a)] == maxWorkers[classOf(a)]
		for _, lane := range list {
			blocked = blocked || e.busy[lane] > 0 || before[lane]
			before[lane] = true
		}
		if blocked {
			continue
		}
		e.queue = slices.Delete(e.queue, i, i+1)
		e.workers[classOf(a)]++
		for _, lane := range list {
			e.busy[lane]++
		}
		return a, true
	}
	return plan.Action{}, false
}

// release gives an action's lanes and its worker back; the controller's lock
// is held.
func (e *executor) release(a plan.Action) {
	delete(e.waiting, a.Key())
	e.workers[classOf(a)]--
	for _, lane := range lanes(a) {
		if e.busy[lane]--; e.busy[lane] == 0 {
			delete(e.busy, lane)
		}
	}
	e.signal()
}

func (e *executor) do(ctx context.Context, a plan.Action) {
	err := e.perform(ctx, a)
	c, key := e.c, a.Key()
	c.mu.Lock()
	defer c.mu.Unlock()
	e.release(a)
	if err != nil && ctx.Err() != nil {
		return // the broker ends; the next one asks for it again
	}
	pause := quietTime
	if errors.Is(err, errOvertaken) {
		pause = 0
		c.log.Info("action dropped", "action", string(a.Kind), "node", a.Node, "nodes", a.Nodes, "reason", err)
	} else if err != nil {
		e.failed[key]++
		pause = min(quietTime<<min(e.failed[key], 5), maxBackoff)
		c.log.Warn("action failed", "action", string(a.Kind), "node", a.Node, "nodes", a.Nodes, "job", a.Reference, "error", err)
	} else {
		delete(e.failed, key)
		c.log.Info("action done", "action", string(a.Kind), "node", a.Node, "nodes", a.Nodes, "job", a.Reference, "text", a.Text)
	}
	e.again[key] = time.Now().Add(pause)
	e.forget()
	if a.Kind != plan.SetFeatures { // nothing waits for what is only shown
		c.pollNow()
	}
}

// forget drops what was last done or tried a while ago: another failure of the same action is then a new one.
func (e *executor) forget() {
	for key, t := range e.again {
		if time.Since(t) > remembered {
			delete(e.again, key)
			delete(e.failed, key)
		}
	}
}
