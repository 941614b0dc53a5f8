// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"strings"

	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/hostlist"
)

// Placeholders in the remedy of a finding about nodes: theNodes for a command that takes a list, eachNode for one that
// takes a single name.
const (
	theNodes = "{nodes}"
	eachNode = "{node}"
)

// nodeWrong adds an error about a node, nodeWarn a warning. Those with the same words become one finding.
func (e *examination) nodeWrong(node, what, remedy string) { e.addNode(Error, node, what, remedy) }
func (e *examination) nodeWarn(node, what, remedy string)  { e.addNode(Warning, node, what, remedy) }

func (e *examination) addNode(s Severity, node, what, remedy string) {
	e.findings = append(e.findings, Finding{Check: e.check, Object: node, Severity: s, What: what, Remedy: remedy, ofNode: true})
}

// grouped makes one finding of those that say the same of several nodes, at the place of the first.
func grouped(findings []Finding) []Finding {
	nodes := map[Finding][]string{}
	var all []Finding
	for _, f := range findings {
		if f.ofNode {
			node := f.Object
			f.Object = ""
			nodes[f] = append(nodes[f], node)
			if len(nodes[f]) > 1 {
				continue
			}
		}
		all = append(all, f)
	}
	for i, f := range all {
		if f.ofNode {
			all[i].Object = hostlist.Compress(nodes[f])
			all[i].Remedy = placed(f.Remedy, nodes[f], all[i].Object)
		}
	}
	return all
}

// placed is a remedy with the nodes' names, as a shell takes them.
func placed(remedy string, nodes []string, list string) string {
	one := list
	if len(nodes) > 1 {
		list, one = "'"+list+"'", "NODE"
	}
	return strings.NewReplacer(theNodes, list, eachNode, one).Replace(remedy)
}
