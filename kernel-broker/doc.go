// SPDX-License-Identifier: Apache-2.0

// Package kernelbroker is the domain: what profiles, kernels, nodes and
// allocations are, which names they may have, and which errors they meet.
// It imports the standard library only, and everything else imports it.
//
// The idea in four words: a job owns its nodes, so it may also choose the
// kernel they run. A Profile is what a user names, a Kernel one immutable
// version of it, an Allocation one run of a job that asked for a profile, and
// a Node what the broker wants of a machine and has seen it prove.
package kernelbroker
