// SPDX-License-Identifier: Apache-2.0

// Package hook is what slurmctld runs for each job: PrologSlurmctld,
// EpilogSlurmctld and RebootProgram.
//
// The idea is that hooks decide nothing. They tell the broker what Slurm told
// them and wait for its answer; the broker carries on when a hook is killed,
// and a hook that is run again joins what goes on. So each is safe to run
// twice, and to kill.
//
// A job that only wants to be looked at (--kernel-profiling without a profile)
// starts whatever becomes of that: its prolog tells the broker, gives the nodes
// a moment to stand by, and ends with 0.
//
// What a hook must know by itself is what the broker cannot do for it:
//
//   - A job without a profile costs nothing: its hook ends before it looks at
//     any file.
//   - Exit 1 of the prolog makes slurmctld requeue the job, also one that was
//     cancelled meanwhile, which would come back from the dead. So before it
//     fails, the prolog asks slurmctld whether the job is still there.
//   - SIGTERM is slurmctld's word for the same (cancelled, or slurmctld ends),
//     and is left to kill: an exit code of our own would requeue.
//   - Without a broker nobody counts, and slurmctld requeues without end. So
//     the prolog counts such failures in files and holds the job in the end;
//     so it does without settings, by what can be made out of them.
//   - slurmctld throws away what its hooks print, and runs RebootProgram with
//     all descriptors closed. So the hooks log to the system's log.
package hook
