// SPDX-License-Identifier: Apache-2.0

// Package slurm looks at slurmctld and changes what the product may change
// there, through Slurm's own commands. It decides nothing.
//
// Commands instead of the C library: their output is stable from 22.05 on,
// whereas the library must match slurmctld to the micro version. Only fields
// that users cannot write into are parsed. Accounts and comments, which may hold
// anything, are asked for by themselves, in records of one length.
package slurm
