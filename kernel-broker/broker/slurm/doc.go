// SPDX-License-Identifier: Apache-2.0

// Package slurm polls slurmctld and makes the product's changes there, through Slurm's own commands. It decides nothing.
//
// It uses commands instead of the C library: their output is stable from 22.05 on, whereas the library must match
// slurmctld to the micro version. It only parses fields that users cannot write. Accounts and comments, which may hold
// any text, have separate queries with fixed-length records.
package slurm
