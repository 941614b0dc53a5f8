// SPDX-License-Identifier: Apache-2.0

// Package pipeline puts the steps of one kernel together: from a recipe to a
// kernel that was measured against the one in use, with a verdict and a report.
//
//	source ─ traced ─ trace ─ slim           what can be left out
//	source ─ config ─ plain                  the kernel without a profile
//	source ─ instrumented ─ profile          what the application runs
//	source ─ optimised ─ boot                compiled with it
//
//	stock, current, plain, optimised:  measure-… ─ verdict ─ report ─ publish
//
// What a recipe does not ask for is not in its graph: without a profile plain is
// the candidate, and without a workload nothing is measured.
//
// The work of the steps is behind three small interfaces, Kernels, Bench and
// Slimmer, whose real forms are in this package too; package graph decides what
// is done, by whom and when. A step passes no inputs on: each is named
// where the graph is made, with a digest, since a forgotten one would give a
// stale result.
//
// Nothing here speaks to a broker. The caller provides a Publisher, which is
// called for a kernel whose verdict is a benefit and for no other.
package pipeline
