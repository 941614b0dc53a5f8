// SPDX-License-Identifier: Apache-2.0

// Package advice says what a job would gain by which kernel, or that there is
// nothing to gain.
//
// The idea: a kernel cannot give a job more time than the kernel took from it.
// So each piece of advice comes with a bound, a share of the job's CPU time that
// was measured and can be checked by hand: what the kernel's own work takes
// bounds every faster kernel, what page faults take bounds larger pages, what
// other tasks and interrupts took bounds quiet CPUs. How much of a bound can be
// had is not guessed: building the kernel and measuring it tells.
//
// It is a pure function of the result. Its rules are a table, and each is
// tested by one.
package advice
