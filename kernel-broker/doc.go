// SPDX-License-Identifier: Apache-2.0

// Package kernelbroker is the domain: profiles, kernels, nodes and allocations, their names and their errors. It imports
// only the standard library; all other packages import it.
//
// A job owns its nodes, so it may also choose their kernel. Users name a Profile; a Kernel is one immutable version of
// it; an Allocation is one run of a job that requested a profile; a Node holds the desired and the proven state of a
// machine.
package kernelbroker
