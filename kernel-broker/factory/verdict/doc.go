// SPDX-License-Identifier: Apache-2.0

// Package verdict decides whether a kernel is better than another for an
// application, from what was measured and from nothing else: no clock, no
// file, no kernel. The same samples and the same rules give the same verdict,
// so that anyone can repeat it from a report's JSON.
//
// The idea: a kernel that does not win is refused. A candidate has to beat the
// current kernel on its own application's workload, by more than the spread of
// what was measured, and, where measuring is not exact, significantly (Welch's
// t-test at 0.05). It has to pass the workloads that check for correctness. And
// a comparison counts only between like and like: the same mitigations, the
// same workload, the same seed and size, and not the data on which the kernel
// was trained.
//
// Beside the outcome a verdict states gains against the slim and the stock kernel,
// and what they are of the workload or the application as a whole. They inform, and
// decide nothing.
//
// Figures that come from a model (an L1 instruction cache, a branch predictor)
// have luck of the layout in them. They are shown, and never decide.
package verdict
