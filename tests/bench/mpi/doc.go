// SPDX-License-Identifier: Apache-2.0

// Package mpi runs mpi-pingpong as jobs of two nodes of a virtual cluster, on the
// nodes' own kernel and on others by turns, and compares what messages take.
//
// Under emulation times are noisy, and drift with the host. So each kernel's figure
// is divided by that of the nodes' own kernel in the same round, and the table has
// the spread of these ratios over all rounds.
package mpi
