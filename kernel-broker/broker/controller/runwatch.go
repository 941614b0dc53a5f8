// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"slices"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/plan"
)

// Figures of a run, until now. Node is empty when only the run has changed.
type Figures struct {
	Run  *kb.Run
	Node string
	JSON []byte
}

// maxFigures of one node's picture.
const maxFigures = 2 << 20

// runWatcher is one watch of a run; the newest figures of each node wait
// for it.
type runWatcher struct {
	run   uint64
	fresh map[string][]byte
	wake  chan struct{}
}

func (w *runWatcher) push(node string, figures []byte) {
	if node != "" {
		w.fresh[node] = figures
	}
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// WatchRun streams the figures of a run until it is over, cannot be read, or ctx ends.
func (c *Controller) WatchRun(ctx context.Context, id uint64) (<-chan Figures, error) {
	r, err := c.records.profilingRun(ctx, id)
	if err != nil {
		return nil, err
	}
	if r.Over() {
		return nil, fmt.Errorf("run %d is %s, there is nothing to watch: %w", id, r.State, kb.ErrFailedPrecondition)
	}
	w := &runWatcher{run: id, fresh: map[string][]byte{}, wake: make(chan struct{}, 1)}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.runWatchers = append(c.runWatchers, w)
	c.markAllLocked()
	out := make(chan Figures)
	go c.followRun(ctx, w, out)
	return out, nil
}

func (c *Controller) followRun(ctx context.Context, w *runWatcher, out chan<- Figures) {
	defer close(out)
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.runWatchers = slices.DeleteFunc(c.runWatchers, func(other *runWatcher) bool { return other == w })
		c.markAllLocked()
	}()
	for {
		r, err := c.records.profilingRun(ctx, w.run)
		if err != nil {
			return
		}
		c.mu.Lock()
		fresh := w.fresh
		w.fresh = map[string][]byte{}
		c.mu.Unlock()
		news := []Figures{{Run: r}}
		for node, figures := range fresh {
			news = append(news, Figures{Run: r, Node: node, JSON: figures})
		}
		for _, f := range news {
			select {
			case out <- f:
			case <-ctx.Done():
				return
			}
		}
		if r.Over() {
			return
		}
		select {
		case <-w.wake:
		case <-time.After(time.Second):
		case <-ctx.Done():
			return
		}
	}
}

// RunReport takes in the agent's report on a run, or its figures.
func (s *Session) RunReport(run uint64, report kb.RunReport, figures []byte) {
	news := true
	s.update(func() {
		r := s.controller.records.runs.open[run]
		if r == nil || r.Node(s.node) == nil {
			return // a node speaks of its own runs only
		}
		if report.State != "" {
			if s.agent.Runs == nil {
				s.agent.Runs = map[uint64]kb.RunReport{}
			}
			if s.agent.Runs[run].State != report.State {
				s.controller.pollForLocked(s.node) // the job has come or left
			}
			news = s.agent.Runs[run] != report
			s.agent.Runs[run] = report
		}
		if len(figures) == 0 || len(figures) > maxFigures {
			return
		}
		for _, w := range s.controller.runWatchers {
			if w.run == run {
				w.push(s.node, figures)
			}
		}
	})
	if report.State != "" {
		s.reportLog(news).Info("agent reports on a run", "run", run, "state", string(report.State), "reason", report.Reason)
	}
}

// pushRuns sends all that is wanted of the node's collectors if that is not what
// it was told last, and drops what the agent said of runs that are over, or for
// a job that left them before it began.
func (s *Session) pushRuns() {
	c := s.controller
	desired := append([]kb.DesiredRun{}, plan.DesiredRuns(c.records.runs.open, c.records.nodes[s.node])...) // nil is another message
	for i, d := range desired {
		desired[i].Watched = slices.ContainsFunc(c.runWatchers, func(w *runWatcher) bool { return w.run == d.Run })
	}
	for run := range s.agent.Runs {
		if r := c.records.runs.open[run]; r == nil || r.Node(s.node) == nil {
			delete(s.agent.Runs, run)
		}
	}
	text := fmt.Sprintf("%+v", desired)
	if text == s.sentRuns {
		return
	}
	s.sentRuns = text
	s.send(Message{Runs: desired})
}

// notifyRunsLocked wakes those who watch runs or wait for their nodes.
func (c *Controller) notifyRunsLocked(runs []*kb.Run) {
	for _, r := range runs {
		for _, ch := range c.watchers[r.Job] {
			select {
			case ch <- struct{}{}:
			default:
			}
		}
		for _, w := range c.runWatchers {
			if w.run == r.ID {
				w.push("", nil)
			}
		}
	}
}

// logRuns tells every change of a run's state.
func (c *Controller) logRuns(before map[uint64]*kb.Run, runs []*kb.Run) {
	for _, r := range runs {
		from := ""
		if old := before[r.ID]; old != nil {
			from = string(old.State)
		}
		if from != string(r.State) {
			c.log.Log(context.Background(), levelOf(r.State == kb.RunFailed), "profiling run changed", "run", r.ID, "job", r.Job.String(), "from", from, "to", string(r.State), "reason", r.Reason)
		}
	}
}
