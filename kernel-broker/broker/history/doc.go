// SPDX-License-Identifier: Apache-2.0

// Package history keeps what happened to nodes, jobs, profiles, kernels and rules.
//
// No rule has to tell: the functions Node, Job, Profile and Rules compare a record with its next one, and whoever commits
// records hands the result to Journal.Commit together with the records. So an event is in the store if and only if its
// change is, whenever the broker is killed.
//
// A commit's events are one record of the store, under the number of the first one:
//
//	events/000000000042   {"count":3,"at":"2026-11-28T21:14:03Z"}
//	                      zstd of a JSON array
//
// The first line is all that the index in memory needs. Numbers rise by one over all records, which the store's fences
// ensure, so a reader goes on after the last number that it has seen. The oldest records are forgotten by age and by bytes.
package history
