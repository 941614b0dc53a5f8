// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// fault notes a failed boot that is to be counted against its kernel, and whether
// another node could have failed as well.
func (d *decision) fault(n *kb.Node, token string, ref kb.Ref, cause string) {
	only := true
	for name, other := range d.in.Nodes {
		only = only && (name == n.Name || !other.Tried(ref))
	}
	n.Faults = append(n.Faults, kb.Fault{Token: token, Ref: ref, Cause: cause, Only: only})
}

// worksElsewhere names a few other nodes that a kernel has booted on; none where
// it has failed on one, too.
func (d *decision) worksElsewhere(n *kb.Node, ref kb.Ref) string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(d.in.Nodes)) {
		other := d.in.Nodes[name]
		if name == n.Name {
			continue
		}
		if f := other.Failure; f != nil && f.Ref == ref && f.Kind == kb.FailureKernel || d.in.Catalog.FailedOn(ref, name) {
			return ""
		}
		for _, booted := range other.Booted {
			if booted == ref && len(list) < 3 {
				list = append(list, name)
			}
		}
	}
	return strings.Join(list, ", ")
}

// bootFault is whose fault it is that a kernel does not come up after all tries:
// the node's, when the kernel works on others.
func (d *decision) bootFault(n *kb.Node, ref kb.Ref, cause string) (kb.FailureKind, string) {
	if others := d.worksElsewhere(n, ref); others != "" {
		return kb.FailureNode, fmt.Sprintf("%s, and it boots on %s", cause, others)
	}
	return kb.FailureKernel, cause
}
