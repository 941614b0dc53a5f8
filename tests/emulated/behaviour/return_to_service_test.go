// SPDX-License-Identifier: Apache-2.0

//go:build emulated

package behaviour

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kernelbroker/kernelbroker/tests/emulated"
)

// The switch works with any ReturnToService: a switch, a return before the next plain job, a cancel during a switch, and
// no node ever counts as crashed. All other tests run with 1.
func TestReturnToService(t *testing.T) {
	for _, value := range []int{0, 2} {
		t.Run(fmt.Sprint(value), func(t *testing.T) {
			t.Parallel()
			c := start(t, func(o *emulated.Options) { o.ReturnToService = value })
			c.prepare("alice", "bob")
			c.file("alice", "hold.sh", holdScript)
			if out := c.must("root", "scontrol", "show", "config"); !containsSetting(out, "ReturnToService", fmt.Sprint(value)) {
				t.Fatalf("ReturnToService is not %d", value)
			}
			first := c.sbatch("alice", "-N2", "--kernel-profile=mitgcm")
			plain := c.sbatch("bob", "-N2")
			c.waitJob(first, "COMPLETED")
			c.waitJob(plain, "COMPLETED")
			c.ranOn("alice", first, "mitgcm", 2)
			c.ranOn("bob", plain, "stock", 2)
			c.settled()
			cancelDuring(c)
			c.settled()
			c.neverCrashed()
		})
	}
}

// containsSetting reads the output of "scontrol show config".
func containsSetting(config, key, value string) bool {
	for line := range strings.Lines(config) {
		k, v, ok := strings.Cut(line, "=")
		if ok && strings.TrimSpace(k) == key {
			return strings.TrimSpace(v) == value
		}
	}
	return false
}

// neverCrashed checks that slurmctld never considered a node crashed.
func (c *cluster) neverCrashed() {
	c.t.Helper()
	text := c.slurmctldSaid()
	for _, word := range []string{"unexpectedly rebooted", "not responding, setting DOWN"} {
		if strings.Contains(text, word) {
			c.t.Errorf("slurmctld: %q", word)
		}
	}
}
