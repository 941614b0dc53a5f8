// SPDX-License-Identifier: Apache-2.0

// Package docs holds what is told to people to what there is: each command in the
// documentation, in the help texts and on the manual pages is found and parsed by
// what would parse it, so that one that a reader types does not fail for its name,
// a flag that there is not, or one that is missing.
//
// Kernelctl's commands go through its own tree of commands; make's targets have to
// be in the Makefile; our other programs have to know their commands and flags. Of
// Slurm's programs there is a table of what 22.05 takes as far as the documentation
// uses it, which is itself compared with the programs where they are installed. A
// command that is new here says so in the table, in the same change.
package docs
