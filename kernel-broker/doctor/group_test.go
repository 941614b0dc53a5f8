// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// manyNodes is a healthy site with twelve nodes more, n04 to n15.
func manyNodes() *Site {
	s := healthy()
	for i := 4; i <= 15; i++ {
		name := fmt.Sprintf("n%02d", i)
		*s.Nodes.Value = append(*s.Nodes.Value, node(name))
		(*s.SlurmNodes.Value)[name] = kb.SlurmNode{Name: name, State: "IDLE"}
		(*s.Certificates.Value)[name] = []Certificate{month()}
	}
	return s
}

// A fault of many nodes is one finding, which names them as Slurm does, with a remedy for all.
func TestOneFaultOfManyNodes(t *testing.T) {
	each := func(change func(*Node)) func(*Site) {
		return func(s *Site) {
			for i := range (*s.Nodes.Value)[3:14] {
				change(&(*s.Nodes.Value)[i+3])
			}
		}
	}
	const eleven = "n[04-14]"
	for name, c := range map[string]struct {
		seed                  func(*Site)
		check, object, remedy string
	}{
		"eleven agents are away":  {each(func(n *Node) { n.Connected = false }), "agents-away", eleven, "systemctl status kernel-broker-agent on the node"},
		"eleven nodes failed":     {each(func(n *Node) { n.Phase, n.Cause = "failed", "no kexec" }), "failed-nodes", eleven, "scontrol update nodename='n[04-14]' state=resume"},
		"eleven are not proven":   {each(func(n *Node) { n.Phase = "unproven" }), "failed-nodes", eleven, "kernelctl node show NODE;"},
		"eleven agents are older": {each(func(n *Node) { n.AgentVersion = "0.9" }), "versions", eleven, "install the broker's version"},
		"eleven were revoked": {func(s *Site) {
			each(func(n *Node) {
				n.Connected = false
				s.Revoked = append(s.Revoked, n.Name)
				delete(*s.Certificates.Value, n.Name)
			})(s)
		}, "agents-away", eleven, "kernelctl node token 'n[04-14]'"},
		"eleven never had an agent":   {func(s *Site) { *s.Nodes.Value = slices.Delete(*s.Nodes.Value, 3, 14) }, "nodes-without-agent", eleven, "install kernel-broker-agent"},
		"eleven are unknown to Slurm": {func(s *Site) { each(func(n *Node) { delete(*s.SlurmNodes.Value, n.Name) })(s) }, "nodes-unknown-to-slurm", eleven, "NodeName"},
		"eleven certificates ended":   {func(s *Site) { each(func(n *Node) { (*s.Certificates.Value)[n.Name] = []Certificate{old(-3)} })(s) }, "node-certificates", eleven, "kernelctl node token 'n[04-14]'"},
		"eleven lack a driver":        {each(func(n *Node) { n.Inventory.Drivers = []string{"mlx5_core"} }), "fits-nodes", "cores@1", "docs/ops/hardware.md"},
	} {
		s := manyNodes()
		c.seed(s)
		var found []Finding
		for _, r := range Examine(s, Ignored{"fits-nodes=stock@1", "fits-nodes=mitgcm@1", "fits-nodes=mitgcm@2"}) {
			found = append(found, r.Findings...)
		}
		if len(found) != 1 || found[0].Check != c.check || found[0].Object != c.object || !strings.Contains(found[0].Remedy, c.remedy) {
			t.Errorf("%s: %d findings, the first is %+v", name, len(found), found[:min(1, len(found))])
		}
		for _, f := range found {
			if strings.ContainsAny(f.Remedy+f.What, "{}") || !strings.Contains(f.Object+f.What, eleven) {
				t.Errorf("%s: %+v", name, f)
			}
		}
	}
}

// What differs stays apart, and what is accepted for some nodes stays a finding for the others.
func TestGroups(t *testing.T) {
	s := manyNodes()
	for i, cause := range []string{"no kexec", "no disk", "no kexec"} {
		n := &(*s.Nodes.Value)[i]
		n.Phase, n.Cause = "failed", cause
	}
	objects := func(ignored ...string) (found, accepted []string) {
		for _, r := range Examine(s, ignored) {
			for _, f := range r.Findings {
				found = append(found, f.Object)
			}
			for _, f := range r.Accepted {
				accepted = append(accepted, f.Object)
			}
		}
		return found, accepted
	}
	for _, c := range []struct{ ignored, found, accepted string }{
		{"failed-nodes=n9", "n[1,3] n2", ""}, {"failed-nodes=n3", "n1 n2", "n3"}, {"failed-nodes=n[2-3]", "n1", "n2 n3"}, {"failed-nodes", "", "n[1,3] n2"},
	} {
		found, accepted := objects(c.ignored)
		if strings.Join(found, " ") != c.found || strings.Join(accepted, " ") != c.accepted {
			t.Errorf("%s: found %v, accepted %v", c.ignored, found, accepted)
		}
	}
}
