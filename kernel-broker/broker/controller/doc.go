// SPDX-License-Identifier: Apache-2.0

// Package controller does what package plan decides.
//
// One Controller holds the records in memory as they are in the store, takes in
// what agents, hooks and slurmctld say, and runs passes: decide, commit the
// changed records fenced by their revisions, and only then tell agents and act
// on slurmctld. A pass that cannot commit acts on nothing. A broker that starts
// reads the records and goes on; nothing else is carried over.
package controller
