// SPDX-License-Identifier: Apache-2.0

package kernelbroker

import (
	"strings"
	"time"
)

// GateRefusal is a job that the gate refused on a node.
type GateRefusal struct {
	Job   uint32
	At    time.Time
	Cause string
}

// ReasonProlog is the reason with which slurmctld drains a node whose prolog
// failed, the gate among others.
const ReasonProlog = "Prolog error"

// reasonTime is scontrol's format for the time of a reason.
const reasonTime = "2006-01-02T15:04:05"

// ReasonAt returns the time of the node's reason by slurmctld's clock, or zero if unknown.
func (n SlurmNode) ReasonAt() time.Time {
	at, err := time.ParseInLocation(reasonTime, n.By[strings.LastIndex(n.By, "@")+1:], time.Local)
	if err != nil {
		return time.Time{}
	}
	return at
}
