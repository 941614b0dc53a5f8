// SPDX-License-Identifier: Apache-2.0

// Package agent is the node agent: it brings a node to the kernel that the
// broker wants, proves what runs, and lets slurmd run only then.
//
// The agent is one loop. It observes the node and the newest desired state, asks
// package decide for the next action, performs it, and observes again. All that
// it knows it can read again, so it may be killed at any moment. It performs one
// action at a time; a new desired state cancels only a fetch, everything else is
// brief.
package agent
