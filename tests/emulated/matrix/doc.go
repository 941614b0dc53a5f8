// SPDX-License-Identifier: Apache-2.0

// Package matrix tries, one by one, the states and commands of Slurm that touch
// a node or a job. docs/ops/slurm-matrix.md says what happens, row by row, and
// names these tests.
package matrix
