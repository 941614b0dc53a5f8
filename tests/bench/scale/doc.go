// SPDX-License-Identifier: Apache-2.0

// Package scale measures what the broker costs at thousands of nodes, and how
// late its answers come.
//
// The broker is the built program, with TLS and its embedded etcd, in a process
// of its own. Everything around it is in this process: the nodes, which are the
// product's own agents over a faked machine (machine.go); slurmctld, which
// answers the commands that broker and hooks run (slurmctld.go); and the hooks,
// the product's own. So what this process takes of the processors is not the
// broker's, and what the product changes in its agents and hooks is measured.
//
// A machine's steps take simulated time, which is the agents' own: the figures
// say what comes on top. They are of a machine that broker and agents share;
// on a busy one seconds grow, and the broker's processor time hardly.
package scale
