// SPDX-License-Identifier: Apache-2.0

// Package model tries a cluster with random actions of users, administrators and
// faults, and compares what happens with a small model of what may happen.
//
// A scenario is drawn beforehand: its actions have numbers in place of job and
// node names, and a number is looked up among what there is when the action's
// turn comes. So a seed gives the same scenario again, although a cluster never
// takes the same course twice. After each action, and at the end, these hold:
//
//   - a process of a job runs on the kernel that the job asked for, and on
//     stock if it asked for none;
//   - a job with --no-requeue runs its script once at most;
//   - a node is as its administrator said, with the reason given, until the
//     administrator takes it back;
//   - once all faults are repaired, every node is idle on stock within a bounded
//     time, and an administrator has nothing to do but what a fault explains;
//   - every job that Slurm accepted has ended in a way that the model explains,
//     and the broker knows those with a profile.
//
// What Slurm does by itself is no violation: a slurmctld that is killed forgets
// some seconds of its state, and ReturnToService=2 takes back a node set down.
package model
