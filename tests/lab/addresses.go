// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"strconv"
	"strings"
)

// The address plan is the same in every lab: each has a network namespace of
// its own, so labs side by side cannot meet.
const (
	frontHost    = "ctl"
	frontAddress = "10.77.0.1"
	prefixLength = 24
	firstNode    = 10 // n1 is .11

	brokerPort = 7440
	execPort   = 7001
)

func nodeName(i int) string { return "n" + strconv.Itoa(i) }

func nodeAddress(i int) string { return fmt.Sprintf("10.77.0.%d", firstNode+i) }

func tapName(i int) string { return "tap" + strconv.Itoa(i) }

// nodeMAC is fixed by the index, so ARP caches stay right over power cycles.
func nodeMAC(i int) string { return fmt.Sprintf("52:54:00:77:00:%02x", firstNode+i) }

// nodeIndex is the inverse of nodeName.
func nodeIndex(name string, nodes int) (int, error) {
	i, err := strconv.Atoi(strings.TrimPrefix(name, "n"))
	if err != nil || name != nodeName(i) || i < 1 || i > nodes {
		return 0, fmt.Errorf("node %q: this lab has n1 to n%d", name, nodes)
	}
	return i, nil
}

// nodeArgs are the arguments by which a node finds its root and its identity. An agent must keep them over a kexec; see
// README.md.
func nodeArgs(i int) []string {
	return []string{
		"root=/dev/vda", "ro", "console=ttyS0", "panic=3",
		// On a loaded host an emulated timer may be late; a kernel that waits for it panics.
		"no_timer_check",
		"kb.node=" + nodeName(i),
		fmt.Sprintf("kb.ip=%s/%d", nodeAddress(i), prefixLength),
	}
}

// hostsFile is /etc/hosts on the front-end and the nodes.
func hostsFile(nodes int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "127.0.0.1 localhost\n%s %s\n", frontAddress, frontHost)
	for i := 1; i <= nodes; i++ {
		fmt.Fprintf(&b, "%s %s\n", nodeAddress(i), nodeName(i))
	}
	return b.String()
}
