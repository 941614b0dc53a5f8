// SPDX-License-Identifier: Apache-2.0

package kernelbroker

import "testing"

// A reason that only begins like slurmctld's own words is an administrator's.
func TestForeign(t *testing.T) {
	for reason, want := range map[string]bool{
		"Not responding":                            false,
		"Not responding : reboot issued":            false,
		"Not responding : kernel update":            false,
		"Not responding on ib0, ticket 77":          true,
		"Reboot ASAP : reboot issued":               false,
		"Reboot ASAP after DIMM swap":               true,
		"reboot timed out":                          false,
		"bad DIMM":                                  true,
		"bad DIMM : reboot issued":                  true,
		"kprof: mitgcm@3 for job 7":                 false,
		"kernel-broker: n1 failed to boot mitgcm@3": false,
		"": false,
	} {
		if n := (SlurmNode{State: "IDLE", Flags: []string{"DRAIN"}, Reason: reason}); n.Foreign() != want {
			t.Errorf("%q: %t", reason, n.Foreign())
		}
	}
}
