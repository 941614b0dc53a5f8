// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"net/netip"
	"strings"
	"testing"
)

func TestAddressPlan(t *testing.T) {
	network := netip.MustParsePrefix("10.77.0.0/24")
	seen := map[string]string{frontAddress: frontHost}
	for i := 1; i <= maxNodes; i++ {
		name, address := nodeName(i), nodeAddress(i)
		if !network.Contains(netip.MustParseAddr(address)) {
			t.Errorf("%s has %s, outside of %s", name, address, network)
		}
		for _, key := range []string{address, nodeMAC(i), tapName(i)} {
			if other, twice := seen[key]; twice {
				t.Errorf("%s and %s both have %s", name, other, key)
			}
			seen[key] = name
		}
		// The kernel refuses longer interface names.
		if len(tapName(i)) > 15 {
			t.Errorf("tap name %q is too long", tapName(i))
		}
		if got, err := nodeIndex(name, maxNodes); err != nil || got != i {
			t.Errorf("nodeIndex(%q) = %d, %v", name, got, err)
		}
	}
}

func TestNodeIndexRefusesOtherNames(t *testing.T) {
	for _, name := range []string{"", "n", "n0", "n3", "n01", "1", "m1", "n-1", "n1 "} {
		if i, err := nodeIndex(name, 2); err == nil {
			t.Errorf("nodeIndex(%q) = %d, want an error", name, i)
		}
	}
}

func TestHostsFile(t *testing.T) {
	text := hostsFile(2)
	for _, line := range []string{"127.0.0.1 localhost\n", "10.77.0.1 ctl\n", "10.77.0.11 n1\n", "10.77.0.12 n2\n"} {
		if !strings.Contains(text, line) {
			t.Errorf("no line %q in\n%s", line, text)
		}
	}
}

func TestNodeArgs(t *testing.T) {
	got := strings.Join(nodeArgs(2), " ")
	want := "root=/dev/vda ro console=ttyS0 panic=3 no_timer_check kb.node=n2 kb.ip=10.77.0.12/24"
	if got != want {
		t.Errorf("node arguments %q, want %q", got, want)
	}
}
