// SPDX-License-Identifier: Apache-2.0

// Package agent is the node agent: it brings a node to the kernel that the
// broker wants, proves what runs, and lets slurmd run only then.
//
// The agent is one loop. It looks at the node and at the newest wish, asks
// package decide for the one thing to do next, does it, and looks again. What it
// knows it can always find out anew, so it may be killed at any moment. One
// thing is done at a time; only a fetch is cut short by a new desired state, everything
// else is brief.
package agent
