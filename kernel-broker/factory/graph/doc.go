// SPDX-License-Identifier: Apache-2.0

// Package graph does steps that depend on each other, each once.
//
// A step has a name, inputs, other steps whose results it needs, and a function
// that fills an empty folder. What it filled is its result, and is stored under
// the digest of the step's inputs and of the results it was handed: the same
// inputs are never worked on twice in one store, and a
// step whose inputs came out the same as before is not done again although a
// step before it was.
//
// A result is in its place completely or not at all. It is written to a folder
// of another name, brought to the disk, and moved into place; a process that is
// killed at any moment leaves nothing that counts as a result, and the next run
// goes on with what was finished.
//
// Two runs that need the same step at once share it: one works, the other
// follows its log and its progress and gets its result, or its failure. Which of
// the two works is settled by a file lock, so the worker may be another process,
// or a job that Slurm started on another machine (see Slurm).
//
//	store/steps/KIND/KEY/lock          held by who works on it
//	                     log           of the last attempt
//	                     units         how far it is
//	                     failure.json  why the last attempt failed
//	                     result/       step.json and files/
//	store/builds/NAME/ID/lock          held by the run
//	                     status.json   how far the run is, for others to read
//
// The package knows nothing of what the steps do.
package graph
