// SPDX-License-Identifier: Apache-2.0

// Package collectcost measures what the collectors of profiling runs cost the
// jobs that they look at: the same job without and with them, by turns, in one
// boot of a distribution's kernel.
//
// The guest is the factory's machine that counts: its clock is a number of
// instructions, and the plugin kbcount counts what the whole machine executes
// while the job runs, so the agent's own work is in the figures too. A second
// figure is the time from the job's begin to its end by that clock, a third the
// CPU time that the job was charged for.
//
// Two parts of one program work on it: on the host Run boots the guests and
// judges, in each guest Guest runs the jobs. They speak by a plan and a list of
// jobs, both JSON.
package collectcost
