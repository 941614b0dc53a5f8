// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"maps"
	"slices"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

func nodeChecks() []check {
	return []check{
		{"nodes-without-agent", "each of Slurm's nodes has had an agent", nodesWithoutAgent},
		{"nodes-unknown-to-slurm", "Slurm has each of the broker's nodes", nodesUnknownToSlurm},
		{"agents-away", "each node's agent is connected", agentsAway},
		{"failed-nodes", "no node failed its switch", failedNodes},
		{"agent-file", "agent.yaml is valid and names a node of Slurm's", agentFile},
		{"agent-answers", "this node's agent runs and has a broker", agentAnswers},
		{"kexec", "this node can load a kernel by kexec", kexec},
		{"panic", "a kernel that panics resets the machine", panics},
		{"collector-cgroups", "the collectors find jobs in cgroups of version 2", cgroup2},
		{"slurmd-unit", "only the agent starts slurmd", slurmdUnit},
		{"slurmd-options", "slurmd does not report a boot at every start", slurmdOptions},
	}
}

func nodesWithoutAgent(e *examination) {
	theirs, ok := need(e, e.SlurmNodes)
	if !ok {
		return
	}
	ours, ok := need(e, e.Nodes)
	if !ok {
		return
	}
	var without []string
	for name := range theirs {
		if !slices.ContainsFunc(ours, func(n Node) bool { return n.Name == name }) {
			without = append(without, name)
		}
	}
	for _, name := range slices.Sorted(slices.Values(without)) {
		e.nodeWarn(name, "no agent has ever connected from it: a job with a profile that gets it is held", "install kernel-broker-agent there, or keep these jobs off it by a partition or a feature")
	}
}

func nodesUnknownToSlurm(e *examination) {
	theirs, ok := need(e, e.SlurmNodes)
	if !ok {
		return
	}
	ours, ok := need(e, e.Nodes)
	if !ok {
		return
	}
	for _, n := range ours {
		if _, known := theirs[n.Name]; known {
			continue
		}
		if n.Connected {
			e.nodeWarn(n.Name, "the broker knows it and Slurm does not", "node of its agent.yaml must be the NodeName; a node that was taken out of slurm.conf: stop its agent")
		} else if e.canConnect(n.Name) {
			e.nodeWarn(n.Name, "Slurm does not have it, and its certificate is good: it can connect", "kernelctl node revoke "+eachNode+", if it has left the cluster")
		}
	}
}

// canConnect reports whether the node has a certificate that is good now.
func (e *examination) canConnect(node string) bool {
	if e.Certificates.Value == nil {
		return false
	}
	return slices.ContainsFunc((*e.Certificates.Value)[node], func(c Certificate) bool { return e.Now.Before(c.Until) })
}

// left reports whether Slurm has no such node: the broker's record of a node stays when the node leaves the cluster.
func (e *examination) left(node string) bool {
	if e.SlurmNodes.Value == nil {
		return false
	}
	_, known := (*e.SlurmNodes.Value)[node]
	return !known
}

// needNodes are the broker's nodes that are in the cluster.
func needNodes(e *examination) ([]Node, bool) {
	nodes, ok := need(e, e.Nodes)
	return slices.DeleteFunc(slices.Clone(nodes), func(n Node) bool { return e.left(n.Name) }), ok
}

func agentsAway(e *examination) {
	nodes, ok := needNodes(e)
	if !ok {
		return
	}
	theirs := map[string]kb.SlurmNode{}
	if e.SlurmNodes.Value != nil {
		theirs = *e.SlurmNodes.Value
	}
	for _, n := range nodes {
		// A node that boots has no agent for a while, and one without power has none at all.
		if n.Connected || n.Phase == "booting" || theirs[n.Name].PoweredDown() {
			continue
		}
		if slices.Contains(e.Revoked, n.Name) {
			e.nodeWarn(n.Name, "its certificate was revoked: jobs with a profile fail there", "take it out of slurm.conf; or kernelctl node token "+theNodes+", and the token to /etc/kernel-broker/token of the node")
		} else {
			e.nodeWrong(n.Name, "its agent is not connected: jobs with a profile fail there", "systemctl status kernel-broker-agent on the node; can it reach the broker's port?")
		}
	}
}

func failedNodes(e *examination) {
	nodes, ok := needNodes(e)
	if !ok {
		return
	}
	for _, n := range nodes {
		switch n.Phase {
		case "failed":
			e.nodeWrong(n.Name, "it could not be brought to its kernel: "+n.Cause, "docs/ops/troubleshooting.md has the causes; then scontrol update nodename="+theNodes+" state=resume")
		case "unproven":
			if n.Connected {
				e.nodeWarn(n.Name, "what it runs is not proven: "+n.Cause, "kernelctl node show "+eachNode+"; the profile stock must be the kernel that its firmware boots")
			}
		}
	}
}

func agentFile(e *examination) {
	a, ok := need(e, e.Agent)
	if !ok {
		return
	}
	if a.Error != "" {
		e.wrong(a.Path, a.Error, "correct it; kernel-broker-agent --check, and agent.yaml.sample has every key")
		return
	}
	e.commands(a.Path, a.Commands)
	if a.Edited {
		e.warn(a.Path, "it was edited, and the agent runs with what it was before", "kernel-broker-agent --check, then systemctl restart kernel-broker-agent; jobs go on")
	}
	theirs, ok := need(e, e.SlurmNodes)
	if _, known := theirs[a.Node]; ok && !known {
		e.wrong(a.Path, fmt.Sprintf("node %q is not a NodeName in slurm.conf", a.Node), "set node in "+a.Path)
	}
}

// needAgent is this node's agent, whose configuration could be read.
func needAgent(e *examination) (Agent, bool) {
	a, ok := need(e, e.Agent)
	if ok && a.Error != "" {
		e.skip(a.Path + " is not valid")
	}
	return a, ok && a.Error == ""
}

func agentAnswers(e *examination) {
	a, ok := needAgent(e)
	switch {
	case !ok:
	case a.Answers != "":
		e.wrong(a.Node, "the agent does not answer: "+a.Answers, "systemctl enable --now kernel-broker-agent; journalctl -u kernel-broker-agent")
	case a.NotConnected:
		e.wrong(a.Node, "the agent has no connection to the broker", "broker of "+a.Path+", its certificate, and a firewall between; journalctl -u kernel-broker-agent")
	}
}

func kexec(e *examination) {
	a, ok := needAgent(e)
	switch {
	case !ok:
	case a.Kexec.Is == ProgramMissing || a.Kexec.Is == ProgramNotExecutable:
		e.wrong(a.Node, a.Kexec.Path+" is "+string(a.Kexec.Is)+": no kernel can be loaded", "install kexec-tools, or set kexec.program of "+a.Path)
	case a.NoKexec != "":
		e.wrong(a.Node, a.NoKexec, "sysctl kernel.kexec_load_disabled is set until the next boot: remove it; a kernel without CONFIG_KEXEC and CONFIG_KEXEC_FILE cannot be left")
	}
}

func panics(e *examination) {
	if a, ok := needAgent(e); ok && a.NoPanic != "" {
		e.warn(a.Node, a.NoPanic+": a kernel that panics hangs until somebody resets the node", "add panic=10 to the boot loader's kernel command line, keep panic in boot.keep_arguments of "+a.Path+", and reboot the node")
	}
}

func cgroup2(e *examination) {
	if a, ok := needAgent(e); ok && a.NoCgroup2 != "" {
		e.warn(a.Node, a.NoCgroup2+": profiling runs have no result from this node", "boot it with systemd.unified_cgroup_hierarchy=1 (or mount cgroup2 at /sys/fs/cgroup), and profiling.cgroups of "+a.Path+"; docs/ops/profiling.md")
	}
}

func slurmdUnit(e *examination) {
	a, ok := needAgent(e)
	switch {
	case !ok:
	case a.UnitEnabled:
		e.wrong(a.Node, "slurmd.service is enabled: slurmd starts on a kernel that the broker has not proven, and a boot looks like a crash", "systemctl disable slurmd")
	case a.Systemd && !a.DropIn:
		e.wrong(a.Node, "slurmd.service does not wait for the agent: slurmd may start on any kernel", "install /usr/share/kernel-broker/slurmd.service.d/kernel-broker.conf to /etc/systemd/system/slurmd.service.d, and systemctl daemon-reload")
	}
}

func slurmdOptions(e *examination) {
	if a, ok := needAgent(e); ok && a.Reports != "" {
		e.wrong(a.Reports, "it gives slurmd -b at every start: Slurm takes a restart of slurmd for a crash and ends the node's jobs", "remove -b from "+a.Reports)
	}
}

// Local is the node of Slurm's that has this host name; empty for none.
func Local(host string, hostNames map[string]string) string {
	for _, name := range slices.Sorted(maps.Keys(hostNames)) {
		if hostNames[name] == host {
			return name
		}
	}
	return ""
}
