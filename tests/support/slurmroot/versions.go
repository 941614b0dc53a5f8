// SPDX-License-Identifier: Apache-2.0

package slurmroot

// What is different from one version of Slurm to another, for those who configure and test it.

// CgroupsUnused is the cgroup.conf of nodes whose slurmd must leave the host's cgroups alone.
func CgroupsUnused(version string) string {
	if version == "22.05" {
		return "" // it cannot disable them, and plugins that use none use none
	}
	return "CgroupPlugin=disabled\n"
}

// PreemptsOnDrainedNodes reports whether a job on a drained node gives way to an urgent one. Armed nodes are drained.
func PreemptsOnDrainedNodes(version string) bool { return version < "24.11" }

// RemembersJobBoots reports whether slurmctld knows after a restart that a node boots for a job, and marks such a boot as
// an administrator's, so that the node cannot be armed before its end.
func RemembersJobBoots(version string) bool { return version >= "26.05" }
