// SPDX-License-Identifier: Apache-2.0

// Package scontrol reads what scontrol prints: the broker, the hooks and the agents ask it for nodes. Its words that several
// say to it are here, too.
package scontrol

import (
	"strconv"
	"strings"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// Incomplete has scontrol requeue, and requeuehold, only a job that is on its nodes. One that was cancelled and still leaves
// them stays cancelled, and that is no error.
const Incomplete = "incomplete"

// ParseNode reads one line of scontrol show node. The reason is last and may hold any text, so it is cut off first.
func ParseNode(line string) (kb.SlurmNode, bool) {
	head, reason, _ := strings.Cut(line, " Reason=")
	node := kb.SlurmNode{}
	node.Reason, node.By = author(reason)
	for _, word := range strings.Fields(head) {
		key, value, _ := strings.Cut(word, "=")
		switch {
		case key == "NodeName" && node.Name == "":
			node.Name = value
		case key == "State" && node.State == "":
			flags := strings.Split(strings.TrimRight(value, "*~#!%$@^-"), "+")
			node.State, node.Flags = strings.TrimRight(flags[0], "*~#!%$@^-"), flags[1:]
		default:
			equip(&node, key, value)
		}
	}
	return node, node.Name != "" && node.State != ""
}

// author splits the " [user@time]" that scontrol adds from a reason, and drops
// fields that newer versions print behind it.
func author(reason string) (words, by string) {
	if i := strings.LastIndex(reason, " ["); i >= 0 && strings.Contains(reason[i:], "@") {
		by, _, _ = strings.Cut(reason[i+len(" ["):], "]")
		reason = reason[:i]
	}
	return strings.TrimSpace(reason), by
}

// equip records a node's resource from a field of scontrol's.
func equip(n *kb.SlurmNode, key, value string) {
	number := func() uint64 {
		v, err := strconv.ParseUint(value, 10, 32)
		if err != nil {
			return 0
		}
		return v
	}
	switch key {
	case "Partitions":
		n.Partitions = strings.Split(value, ",")
	case "ActiveFeatures":
		if value != "" && value != "(null)" && value != "N/A" {
			n.Features = strings.Split(value, ",")
		}
	case "CPUTot", "CPUEfctv": // available to jobs, since 22.05
		if v := number(); n.CPUs == 0 || v < n.CPUs {
			n.CPUs = v
		}
	case "RealMemory":
		n.MemoryMiB += number()
	case "MemSpecLimit":
		n.MemoryMiB -= min(number(), n.MemoryMiB)
	}
}
