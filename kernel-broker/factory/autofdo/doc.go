// SPDX-License-Identifier: Apache-2.0

// Package autofdo makes clang's sample profiles of a kernel from records of its
// branches: which were taken, and what ran between them. No kernel is
// instrumented for that. The records are of two kinds:
//
//   - FromBranches takes those of the emulator's plugin (measure/plugin/flow.h),
//     which sees each branch.
//   - FromPerf takes what a site's own nodes sampled with "perf record -b" while
//     jobs ran on a kernel that the factory has made.
//
// Both name addresses. The kernel's vmlinux says which lines they are, so that it
// must be of the same build, and have been compiled with LineFlags. Lines outlast
// a build: a profile fits any kernel of the same source, and profiles of several
// kernels, runs and sites are merged, with weights.
//
// Profiles are text, which can be read and compared, and is the same each time.
package autofdo
