// SPDX-License-Identifier: Apache-2.0

// Package scontrol reads what scontrol prints: the broker, the hooks and the agents ask it for nodes. Its words that several
// say to it are here, too.
package scontrol

import (
	"regexp"
	"strconv"
	"strings"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// Incomplete has scontrol requeue, and requeuehold, only a job that is on its nodes. One that was cancelled and still leaves
// them stays cancelled, and that is no error.
const Incomplete = "incomplete"

// A node's line has three parts. Its fields are single words in a fixed order, but for OS=, which slurmd reports. Behind
// them stand the texts that people and programs write, in this order, each only if there is one.
var (
	// texts is what the first of them begins with. None of the fields' names is among them.
	texts = []string{reasonField, " Comment=", " Extra=", " InstanceId=", " InstanceType=", " ReservationName="}
	// afterOS are the fields behind OS=. Nothing but slurmd's own words can contain them.
	afterOS = regexp.MustCompile(` RealMemory=\d+ +AllocMem=\d+ +FreeMem=\S+ +Sockets=\d+ +Boards=\d+ `)
	// given is a reason's author and time, behind its first line. Further lines are indented; then come the other texts.
	given = regexp.MustCompile(`(?s)^(.*?) \[([^\[\]]+@\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\](?: {8}| *(?:` + strings.Join(texts[1:], "|") + `)|\s*$)`)
)

const nameField, osField, reasonField = "NodeName=", " OS=", " Reason="

// ParseNode reads one line of scontrol show node, as it was printed. One that does not begin a node is a further line of a
// node's texts.
func ParseNode(line string) (kb.SlurmNode, bool) {
	fields, text, ok := split(strings.TrimRight(line, " \n"))
	if !ok || !strings.HasPrefix(line, nameField) {
		return kb.SlurmNode{}, false
	}
	node := kb.SlurmNode{}
	if reason, is := strings.CutPrefix(text, reasonField); is {
		node.Reason, node.By = author(reason)
	}
	for _, word := range strings.Fields(fields) {
		key, value, _ := strings.Cut(word, "=")
		switch {
		case key == "NodeName" && node.Name == "":
			node.Name = value
		case key == "State" && node.State == "":
			flags := strings.Split(strings.TrimRight(value, "*~#!%$@^-"), "+")
			node.State, node.Flags = strings.TrimRight(flags[0], "*~#!%$@^-"), flags[1:]
		case key == "ResumeAfterTime":
			node.ResumeAfter = moment(value)
		default:
			equip(&node, key, value)
		}
	}
	return node, node.Name != "" && node.State != ""
}

// split separates a line's fields, without OS=, from its texts. A line whose fields behind OS= are not found is not read.
func split(line string) (fields, text string, ok bool) {
	fields, text = cut(line)
	at := strings.Index(fields, osField)
	if at < 0 {
		return fields, text, true
	}
	rest := afterOS.FindStringIndex(line[at:])
	if rest == nil {
		return "", "", false
	}
	head := line[:at]
	fields, text = cut(line[at+rest[0]:])
	return head + fields, text, true
}

// cut separates what stands before the first text.
func cut(line string) (fields, text string) {
	first := len(line)
	for _, t := range texts {
		if at := strings.Index(line[:first], t); at >= 0 {
			first = at
		}
	}
	return line[:first], line[first:]
}

// author splits the " [user@time]" that scontrol adds to the first line of a reason from it, and drops what follows.
func author(reason string) (words, by string) {
	if found := given.FindStringSubmatch(reason); found != nil {
		return strings.TrimSpace(found[1]), found[2]
	}
	words, _ = cut(reason)
	return strings.TrimSpace(words), ""
}

// moment is a time in scontrol's format, of this host's zone; zero for none.
func moment(text string) time.Time {
	at, err := time.ParseInLocation("2006-01-02T15:04:05", text, time.Local)
	if err != nil {
		return time.Time{} // "None"
	}
	return at
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
		n.Features = features(value)
	case "AvailableFeatures":
		n.Available = features(value)
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

func features(value string) []string {
	if value == "" || value == "(null)" || value == "N/A" {
		return nil
	}
	return strings.Split(value, ",")
}
