// SPDX-License-Identifier: Apache-2.0

package kernelbroker

import (
	"strings"
	"time"
)

// GateRefusal is a job that the gate did not let begin on a node.
type GateRefusal struct {
	Job   uint32
	At    time.Time
	Cause string
}

// ReasonProlog is the reason with which slurmctld drains a node whose prolog
// failed, the gate among others.
const ReasonProlog = "Prolog error"

// reasonTime is how scontrol writes when a reason was given.
const reasonTime = "2006-01-02T15:04:05"

// ReasonAt returns when the node's reason was given, by slurmctld's clock; zero
// if that is not known.
func (n SlurmNode) ReasonAt() time.Time {
	at, err := time.ParseInLocation(reasonTime, n.By[strings.LastIndex(n.By, "@")+1:], time.Local)
	if err != nil {
		return time.Time{}
	}
	return at
}
