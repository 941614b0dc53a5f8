// SPDX-License-Identifier: Apache-2.0

// Package patterns finds in what a job does to single files the few ways in
// which it does input and output, and says what each suggests.
//
// The idea: two files belong together if their names differ only in what
// counts (digits) and they are used alike. How a file is used is one of a
// handful of behaviours, each a rule on its counters, in an order in which the
// first that fits names it. Groups are sums, so they are made file by file, and
// a job with a million files needs no more memory than one with ten patterns.
// Advice rests on the sums alone and can be derived again after a merge.
package patterns
