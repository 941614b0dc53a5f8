// SPDX-License-Identifier: Apache-2.0

// Package runs looks after the profiling runs that the broker wants on this
// node: it begins each with the job, ends it with the job, and delivers what
// was found.
//
// The idea: the broker says all that it wants whenever it changed, and each run
// is one goroutine that follows its wish: stand by, look, deliver, forget. A
// run that the broker names no more is over, whatever it was doing. Nothing here
// can fail a job: what goes wrong becomes the run's reason or a word in its
// result.
//
// A job's cgroup is made before Slurm makes it, so that the collectors are
// attached when its first process starts and counts are whole; Slurm takes a
// folder that is there for its own. One that no job came to is removed again.
//
// What was found lies in a folder for each run until the broker has it. An agent
// that was killed leaves what it had written until then; the next one adds to
// it what it finds itself, or delivers it as it is.
package runs
