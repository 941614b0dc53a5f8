// SPDX-License-Identifier: Apache-2.0

// Package docs checks documentation against the programs: each command in the documentation, the help texts and the
// manual pages is parsed by its real parser, so that it does not fail for its name, an unknown flag, or a missing one.
//
// Kernelctl's commands go through its own command tree; make's targets must be in the Makefile; our other programs must
// know their commands and flags. A table lists the options of Slurm 22.05 that the documentation uses, and is itself
// compared with installed programs. A new command of Slurm needs an entry in the table.
package docs
