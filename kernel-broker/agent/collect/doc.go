// SPDX-License-Identifier: Apache-2.0

// Package collect profiles one job on this node: it checks and starts collectors, publishes figures while the job runs,
// writes the result at its end, and leaves nothing behind.
//
// A job is a cgroup. A collector starts for one cgroup, observes only its tasks, and ends with it. Everything attached
// is held by file descriptors of this process and pinned nowhere, so the kernel detaches it even if the agent is killed.
//
// A collector that cannot work on a kernel reports the reason and a remedy before the job starts, as
// *profiling.Unsupported. The job runs anyway.
//
// Collectors do not know each other. Each is a subpackage; package cmd passes the requested ones to Run.
package collect
