// SPDX-License-Identifier: Apache-2.0

// Package hook is what slurmctld runs for each job: PrologSlurmctld,
// EpilogSlurmctld and RebootProgram.
//
// Hooks decide nothing. They report to the broker and wait for its answer. The
// broker continues when a hook is killed, and a hook that runs again joins the
// switch in progress, so each hook is safe to repeat and to kill.
//
// A job that only requests profiling (--kernel-profiling without a profile)
// always starts: its prolog informs the broker, waits a moment for the nodes to
// get ready, and exits 0.
//
// What a hook must do without the broker:
//
//   - A job without a profile costs nothing: its hook ends before it opens any
//     file.
//   - Exit 1 of the prolog makes slurmctld requeue the job, even a cancelled
//     one. So before it fails, the prolog asks slurmctld whether the job still
//     exists.
//   - SIGTERM from slurmctld means the same (job cancelled, or slurmctld ends).
//     It has no handler: an exit code would requeue.
//   - Without a broker slurmctld requeues without end. So the prolog counts such
//     failures in files and finally holds the job, even if it cannot read its
//     settings.
//   - slurmctld discards the output of its hooks and runs RebootProgram with
//     all descriptors closed. So the hooks log to the system's log.
package hook
