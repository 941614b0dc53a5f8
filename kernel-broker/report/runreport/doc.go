// SPDX-License-Identifier: Apache-2.0

// Package runreport makes of a profiling run a page and its JSON, and of two sides
// of runs a page that compares them.
//
// The idea: a report is data first. Report holds the run, what was found and
// what follows from it, in the JSON that report.schema.json describes; the page
// draws that and knows nothing more. Beside each collector's figures stands
// what the collector cost, and the page begins with the decision that the
// figures lead to.
package runreport
