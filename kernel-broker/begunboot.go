// SPDX-License-Identifier: Apache-2.0

package kernelbroker

import "time"

// BegunBoot is a boot of a node that slurmctld has begun (RebootProgram) and that the broker did not ask for. It is on
// record until somebody boots the node, or slurmctld waits for it no more.
type BegunBoot struct {
	Node string `json:"node"`
	// At is when slurmctld began it.
	At time.Time `json:"at"`
	// ForJob: a job asked for a boot (sbatch --reboot) and for no kernel.
	ForJob bool `json:"for_job,omitempty"`
	// Reset: the broker resets the node, since neither an agent nor a program of the site boots it.
	Reset bool `json:"reset,omitempty"`
}
