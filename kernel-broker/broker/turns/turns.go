// SPDX-License-Identifier: Apache-2.0

// Package turns decides whose switch begins next where a site bounds how many are under way at a time (switch.at_once). Jobs
// form the line by asking, again and again: after a restart of the broker those that ask form it once more. A job that is
// requeued keeps its place.
package turns

import (
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

const (
	// AskEvery is the time between two requests of one job.
	AskEvery = 5 * time.Second
	// placeKept is how long a job keeps its place without a request: Slurm starts a requeued job after two minutes.
	placeKept = 5 * time.Minute
	// askedLately is the age of the last request up to which a job counts for those behind it.
	askedLately = 3 * AskEvery
)

// Line is of the jobs that wait. Make one by New; the times that it is given may come from any one clock.
type Line struct {
	most   int
	places map[uint32]*place
}

type place struct {
	first time.Time // start of the wait
	asked time.Time // the last request
	run   kb.JobID  // that waits, since begun
	begun time.Time
	said  string // of its place to its user
}

// New returns an empty line for so many switches at a time; 0: any number.
func New(most int) *Line { return &Line{most: most, places: map[uint32]*place{}} }

// Ask has a run of a job ask for its turn while so many switches are under way. It returns how many are before it and how
// long it has waited; -1 if it may begin.
func (l *Line) Ask(run kb.JobID, under int, now time.Time) (ahead int, waited time.Duration) {
	if l.most == 0 {
		return -1, 0
	}
	for job, p := range l.places {
		if now.Sub(p.asked) > placeKept {
			delete(l.places, job)
		}
	}
	own := l.places[run.Job]
	if own == nil {
		own = &place{first: now}
		l.places[run.Job] = own
	}
	if own.run != run {
		own.run, own.begun, own.said = run, now, ""
	}
	own.asked = now
	if ahead = l.before(run.Job, now); under+ahead < l.most {
		return -1, 0
	}
	return ahead, now.Sub(own.begun)
}

// Ahead is how many are before a run that waits; -1 if it does not wait.
func (l *Line) Ahead(run kb.JobID, now time.Time) int {
	if p := l.places[run.Job]; p == nil || p.run != run {
		return -1
	}
	return l.before(run.Job, now)
}

func (l *Line) before(job uint32, now time.Time) (ahead int) {
	own := l.places[job]
	for other, p := range l.places {
		earlier := p.first.Before(own.first) || p.first.Equal(own.first) && other < job
		if earlier && now.Sub(p.asked) < askedLately {
			ahead++
		}
	}
	return ahead
}

// Waiting are the runs that wait for their turn.
func (l *Line) Waiting(now time.Time) map[kb.JobID]bool {
	waiting := map[kb.JobID]bool{}
	for _, p := range l.places {
		if now.Sub(p.asked) < askedLately {
			waiting[p.run] = true
		}
	}
	return waiting
}

// Since is when a job of the line first asked.
func (l *Line) Since(job uint32) time.Time { return l.places[job].first }

// Leave takes a job out of the line.
func (l *Line) Leave(job uint32) { delete(l.places, job) }

// News reports whether a text on its place was not said to a run's user yet, and Said that it was.
func (l *Line) News(run kb.JobID, text string) bool {
	p := l.places[run.Job]
	return p == nil || p.run != run || p.said != text
}

// Said notes what was said to a run's user.
func (l *Line) Said(run kb.JobID, text string) {
	if p := l.places[run.Job]; p != nil && p.run == run {
		p.said = text
	}
}
