// SPDX-License-Identifier: Apache-2.0

// Package kernelreport says what a kernel is and what it was measured to be worth:
// as JSON, as a self-contained page, and as tables for a terminal.
//
// The idea: a report is Facts, which the build and the bench found, and
// Figures, which follow from the facts by package verdict and by nothing else.
// Anyone can pass a report's facts to Make again. The page and the tables are
// one document (package report), so that they cannot say different things.
//
// A report is of one kernel (Facts.Subject) and then has a verdict; without a
// subject it is of several kernels side by side, a bench.
package kernelreport
