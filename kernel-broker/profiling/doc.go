// SPDX-License-Identifier: Apache-2.0

// Package profiling is what a profiling run says: which collectors there are,
// what each found on a node, and how the words of several nodes become one.
//
// The idea: results are plain data that add up. Every figure is a count, a sum
// of nanoseconds or bytes, a histogram of powers of two, or the largest of its
// kind, so that merging is addition, in any order, and nothing that one node
// knew is lost by it. Shares, quantiles and means are worked out by whoever
// reads. A result that is not whole says so by itself: what was refused, what
// broke off, what found no room, and what the measuring cost.
//
// The package imports the standard library only. schema/run.schema.json
// describes the JSON; a test holds it and these types together.
package profiling
