// SPDX-License-Identifier: Apache-2.0

package kernelbroker

import "time"

// Tally is the state of the cluster at one moment, as figures.
type Tally struct {
	Nodes []NodeTally
	// Jobs are allocations that are not over, by phase. Turns are jobs that wait until fewer switches are under way.
	Jobs  map[Phase]int
	Turns int
	// LongestTurn is how long the first of them has waited.
	LongestTurn time.Duration
	Connected   int
	// SlurmSeen is when slurmctld answered last.
	SlurmSeen time.Time
	Ledger    []*LedgerRow
}

// NodeTally is one node of a tally.
type NodeTally struct {
	Name    string
	Running Ref
	Release string
	State   Progress
	// Connected: its agent is.
	Connected bool
	// Armed: slurmctld is about to boot it for the broker, which is no fault. Serving: jobs may begin on it.
	Armed, Serving bool
}
