// SPDX-License-Identifier: Apache-2.0

package collectcost

// The markers that kbcount looks for, each in a function of its own since the
// number is a part of the instruction.

//go:noescape
func markStart()

//go:noescape
func markJob()

//go:noescape
func markStop()

//go:noescape
func markEnd()

// The regions of a job, in their order.
const (
	regionOwn   = 1 + iota // the first of a program that marks what counts itself
	regionStart            // collectors are loaded and attached
	regionJob              // the job runs
	regionStop             // they are read and detached
)

// regions that a job has.
const regions = 3
