// SPDX-License-Identifier: Apache-2.0

package kernelbroker

// Progress is how far a node is with its switch of kernels. The agent reports
// it, the plan records and decides on it, and users read it.
type Progress string

// A switch goes Idle, Loading, Loaded, Booting and ends in a boot. A new desired
// state leads from anywhere to Idle, a lost stream from Booting to Loaded, a boot
// that takes too long to Reset, and what cannot be to Failed.
const (
	// ProgressIdle: the agent has nothing prepared.
	ProgressIdle Progress = ""
	// ProgressLoading: the agent fetches and checks. The node still runs what it
	// ran. A pending boot stays here while its kernel is loaded.
	ProgressLoading Progress = "loading"
	// ProgressLoaded: digests were checked and the kernel took the image after that.
	ProgressLoaded Progress = "loaded"
	// ProgressBooting: the broker has acknowledged that the node begins its kexec;
	// the node is silent until it shows a new boot id.
	ProgressBooting Progress = "booting"
	// ProgressReset: the boot took too long, and the node is reset from outside.
	ProgressReset Progress = "reset"
	// ProgressFailed: the node could not be brought to the desired kernel.
	ProgressFailed Progress = "failed"
	// ProgressSteady: the node is proven to run the desired kernel.
	ProgressSteady Progress = "steady"
	// ProgressUnproven: no switch is under way, and what runs is not proven or
	// not desired.
	ProgressUnproven Progress = "unproven"
)

// String is the text that users read.
func (p Progress) String() string {
	if p == ProgressIdle {
		return "idle"
	}
	return string(p)
}
