// SPDX-License-Identifier: Apache-2.0

// Package runs executes the profiling runs that the broker wants on this node: it starts each with the job, ends it with
// the job, and uploads the result.
//
// The broker sends the complete list of desired runs at each change, and each run is one goroutine: wait for the job,
// collect, upload, forget. A run that is no longer listed ends, whatever its state. Nothing here can fail a job: errors
// become the run's reason or a note in its result.
//
// A job's cgroup is created before Slurm creates it, so that the collectors are attached when its first process starts
// and counts are complete; Slurm accepts an existing directory. An unused one is removed again.
//
// Each run has a directory for its result until the broker has it. After a crash of the agent, the next one merges its
// own results with those it finds there, or uploads them as they are.
package runs
