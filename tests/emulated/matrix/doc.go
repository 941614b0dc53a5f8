// SPDX-License-Identifier: Apache-2.0

// Package matrix tests, one by one, the states and commands of Slurm that affect a node or a job.
// docs/ops/slurm-matrix.md lists the results and names these tests.
package matrix
