// SPDX-License-Identifier: Apache-2.0

//go:build lab

package suites

import (
	"strings"
	"testing"

	"github.com/kernelbroker/kernelbroker/tests/lab"
)

// Debian's kernel, locked down as it is under Secure Boot: it refuses kexec_load,
// and takes by kexec_file_load only images with a PE signature by a key that it
// knows. Here, without Secure Boot's firmware, it knows none, not even the one
// that signed Debian's own image; so the node stays what it is, and the user
// reads why. What a known key opens is shown by TestSecureBoot of agent/kexec.
func TestTrustLockdown(t *testing.T) {
	f := startFaults(t, func(o *lab.Options) {
		o.Kernel = "stock"
		o.KernelArgs = []string{"lockdown=integrity"}
	})
	f.profile("foreign", "stock", []string{"quiet"})
	f.on("locked-down", func(f *faults) {
		for _, n := range f.Nodes() {
			r, err := n.Exec(f.ctx, "cat", "/sys/kernel/security/lockdown")
			if err != nil || !strings.Contains(r.Stdout, "[integrity]") {
				f.t.Errorf("node %s: %s %v", n.Name(), r.Stdout, err)
			}
		}
	})
	for name, profile := range map[string]string{"no-signature": "mitgcm", "a-signature-by-an-unknown-key": "foreign"} {
		f.on(name, func(f *faults) {
			id := f.ask("alice", profile, 0, "-N1")
			f.isHeld("alice", id, profile+"@1", "PE signature")
			f.never("alice", id)
			f.cancelled("alice", id)
		})
	}
}
