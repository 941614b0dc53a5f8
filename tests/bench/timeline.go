// SPDX-License-Identifier: Apache-2.0

package bench

import "time"

// ready is the broker's last word before slurmctld starts the job.
const ready = "ready"

// Job is what kernelctl says of a job, as far as it matters here.
type Job struct {
	Restarts int     `json:"restart_count"`
	Timeline []Event `json:"timeline"`
	During   []Proof `json:"during"`
}

// Event of a job's timeline; Node is empty where it is about the whole job.
type Event struct {
	At    time.Time `json:"at"`
	Node  string    `json:"node"`
	Event string    `json:"event"`
}

// Proof of what a node ran.
type Proof struct {
	Node    string `json:"node"`
	BuildID string `json:"build_id"`
	BootID  string `json:"boot_id"`
}

// phase is one stretch of a switch.
type phase struct {
	name    string
	seconds float64
}

// phases cuts the time from submit to running into stretches, each named by the
// event that ends it. A job waits for its slowest node, so the last node to
// reach an event counts. Their sum is the whole time.
func phases(timeline []Event, submitted, running time.Time) []phase {
	last := map[string]time.Time{}
	var order []string
	for _, e := range timeline {
		if e.At.After(running) {
			break // what the broker wrote down late
		}
		if _, seen := last[e.Event]; !seen {
			order = append(order, e.Event)
		}
		if e.At.After(last[e.Event]) {
			last[e.Event] = e.At
		}
		if e.Event == ready {
			break // what follows is the job's own time, and the return
		}
	}
	var list []phase
	before := submitted
	for _, event := range order {
		at := last[event]
		if at.Before(before) {
			at = before // a step that another node's earlier one outlasted
		}
		list = append(list, phase{event, at.Sub(before).Seconds()})
		before = at
	}
	return append(list, phase{"running", running.Sub(before).Seconds()})
}
