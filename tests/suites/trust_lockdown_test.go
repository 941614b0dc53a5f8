// SPDX-License-Identifier: Apache-2.0

//go:build lab

package suites

import (
	"strings"
	"testing"

	"github.com/kernelbroker/kernelbroker/tests/lab"
)

// Debian's kernel, locked down as under Secure Boot: it refuses kexec_load, and kexec_file_load accepts only images with
// a PE signature by a known key. Without Secure Boot's firmware it knows none, not even the one of Debian's own image;
// so the node keeps its kernel, and the user gets the reason. TestSecureBoot of agent/kexec tests a known key.
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
