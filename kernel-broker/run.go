// SPDX-License-Identifier: Apache-2.0

package kernelbroker

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// RunState is where a profiling run is.
type RunState string

// The states of a run.
const (
	// RunRequested: no process of the job was seen yet, and the job may not exist yet. Goes to running, or to failed if
	// the job leaves before it starts.
	RunRequested RunState = "requested"
	// RunRunning: the job is being profiled, or it has ended and its results are in transit. Goes to one of those below.
	RunRunning RunState = "running"
	// RunComplete: every node delivered a whole result. Final.
	RunComplete RunState = "complete"
	// RunPartial: some nodes have no or incomplete results. Final.
	RunPartial RunState = "partial"
	// RunFailed: there is no result. Final.
	RunFailed RunState = "failed"
)

// RunNodeState is how far one node of a run is.
type RunNodeState string

// The states of a node in a run. Those from delivered on are final.
const (
	// RunNodeWaiting: the agent has not answered yet.
	RunNodeWaiting RunNodeState = "waiting"
	// RunNodeReady: the collectors are ready for the job.
	RunNodeReady RunNodeState = "ready"
	// RunNodeLooking: processes of the job were seen.
	RunNodeLooking RunNodeState = "looking"
	// RunNodeDelivered: its result is stored.
	RunNodeDelivered RunNodeState = "delivered"
	// RunNodeFailed: the agent has no result.
	RunNodeFailed RunNodeState = "failed"
	// RunNodeLost: no result arrived in time.
	RunNodeLost RunNodeState = "lost"
)

// ResultFile is the name of a node's result among its files.
const ResultFile = "result.json"

// InstrumentedSuffix makes of a profile's name that of its instrumented kernel,
// which counts for profile-guided builds.
const InstrumentedSuffix = "-instrumented"

// RunNode is one node's part in a run.
type RunNode struct {
	Name   string       `json:"name"`
	State  RunNodeState `json:"state"`
	Reason string       `json:"reason,omitempty"`
	// Partial is why a result is incomplete.
	Partial string     `json:"partial,omitempty"`
	Files   []Document `json:"files,omitempty"`
	Since   time.Time  `json:"since,omitzero"`
	// Left: the job has released the node and continues on others.
	Left bool `json:"left,omitempty"`
}

// Settled reports whether the node has nothing left to send.
func (n RunNode) Settled() bool {
	return n.State == RunNodeDelivered || n.State == RunNodeFailed || n.State == RunNodeLost
}

// Run is one profiling run: a job that is profiled, or a request to profile the next job of an application.
type Run struct {
	ID    uint64    `json:"id"`
	State RunState  `json:"state"`
	Since time.Time `json:"since"`
	// Reason of a run that failed or is partial.
	Reason string `json:"reason,omitempty"`
	// Requested collectors, in the order of reports.
	Collectors []string `json:"collectors"`
	// RequestID is the caller's id of the request; repeating it creates no second run.
	RequestID string `json:"request_id,omitempty"`
	// RequestedBy is the requesting user, with the time of the request and, unless it is for a specific job, the
	// application or profile whose next job is profiled.
	RequestedBy string    `json:"requested_by"`
	Requested   time.Time `json:"requested"`
	Application string    `json:"application,omitempty"`
	Profile     string    `json:"profile,omitempty"`

	// The job, once it exists.
	Job       JobID  `json:"job,omitzero"`
	Reference string `json:"reference,omitempty"`
	User      string `json:"user,omitempty"`
	UID       uint32 `json:"uid,omitempty"`
	// Cgroup is the name of its cgroup on the nodes, empty for job_ID.
	Cgroup string    `json:"cgroup,omitempty"`
	Kernel Ref       `json:"kernel,omitzero"`
	Nodes  []RunNode `json:"nodes,omitempty"`
	// Claimed is when the job was found, Began when it was first seen running, Ended when it was first missing.
	Claimed time.Time `json:"claimed,omitzero"`
	Began   time.Time `json:"began,omitzero"`
	Ended   time.Time `json:"ended,omitzero"`
}

// Over reports whether the run is in a final state.
func (r *Run) Over() bool {
	return r.State == RunComplete || r.State == RunPartial || r.State == RunFailed
}

// Node returns a node's part, or nil.
func (r *Run) Node(name string) *RunNode {
	for i := range r.Nodes {
		if r.Nodes[i].Name == name {
			return &r.Nodes[i]
		}
	}
	return nil
}

// Awaits reports whether a node has not answered yet.
func (r *Run) Awaits() bool {
	return slices.ContainsFunc(r.Nodes, func(n RunNode) bool { return n.State == RunNodeWaiting })
}

// Enter changes the state.
func (r *Run) Enter(state RunState, now time.Time, reason string) {
	r.State, r.Since, r.Reason = state, now, reason
}

// Claim assigns the job to the run.
func (r *Run) Claim(now time.Time, nodes []string) {
	r.Claimed = now
	r.Nodes = nil
	for _, name := range nodes {
		r.Nodes = append(r.Nodes, RunNode{Name: name, State: RunNodeWaiting, Since: now})
	}
}

// Wants reports whether a request without a job waits for one like this.
func (r *Run) Wants(profile, application string) bool {
	if r.Over() || !r.Job.IsZero() {
		return false
	}
	if r.Profile != "" {
		return r.Profile == profile
	}
	return r.Application != "" && strings.EqualFold(r.Application, application)
}

// Clone returns a deep copy.
func (r *Run) Clone() *Run {
	c := *r
	c.Collectors = slices.Clone(r.Collectors)
	c.Nodes = slices.Clone(r.Nodes)
	for i := range c.Nodes {
		c.Nodes[i].Files = slices.Clone(c.Nodes[i].Files)
	}
	return &c
}

// plainFile accepts names that are the same in each folder.
func plainFile(name string) bool { return name != "" && plainName(name, maxRunFileName) }

// Limits on the number of files of one node and on their names.
const (
	maxRunFiles    = 4
	maxRunFileName = 128
)

// ValidateRunFile accepts a file's name and digest.
func ValidateRunFile(name, digest string) error {
	if !plainFile(name) {
		return fmt.Errorf("file %.150q of a run has no plain name: %w", name, ErrInvalid)
	}
	if err := ValidateDigest(digest); err != nil {
		return fmt.Errorf("file %q of a run: %w", name, err)
	}
	return nil
}

// ValidateRunFiles accepts the files that a node may upload: its result and attachments, at most limit bytes in total.
func ValidateRunFiles(files []Document, limit uint64) error {
	if len(files) == 0 || len(files) > maxRunFiles {
		return fmt.Errorf("%d files of a run, 1 to %d are allowed: %w", len(files), maxRunFiles, ErrInvalid)
	}
	total, seen := uint64(0), map[string]bool{}
	for _, f := range files {
		if err := ValidateRunFile(f.Name, f.Digest); err != nil {
			return err
		}
		if seen[f.Name] {
			return fmt.Errorf("file %q of a run is given twice: %w", f.Name, ErrInvalid)
		}
		seen[f.Name] = true
		if f.Size > limit || total > limit-f.Size {
			return fmt.Errorf("file %q of a run: more than %d bytes in all: %w", f.Name, limit, ErrInvalid)
		}
		total += f.Size
	}
	if !seen[ResultFile] {
		return fmt.Errorf("no %s among the files of a run: %w", ResultFile, ErrInvalid)
	}
	return nil
}
