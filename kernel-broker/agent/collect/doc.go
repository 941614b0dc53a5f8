// SPDX-License-Identifier: Apache-2.0

// Package collect looks at one job on this node while it runs: which
// collectors can work here, starting them, their figures meanwhile, their
// result at the end, and that nothing stays behind.
//
// The idea: a job is a cgroup. A collector is started for one, sees what the
// tasks in it do and nothing else, and ends with it. All that a collector
// attaches hangs on file descriptors of this process, pinned nowhere, so that
// the kernel takes it away also when the agent is killed.
//
// A collector that cannot work on a kernel says so, why, and what would help,
// before the job begins, as *profiling.Unsupported. The job runs all the same.
//
// Collectors do not know each other. Each is a package below this one; Run is
// given those that were asked for, and who gives them is package cmd's matter.
package collect
