// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kernelbroker/kernelbroker/kernel-broker/api/convert"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
)

func (a *app) nodeCommand() *cobra.Command {
	list := &cobra.Command{Use: "list", Short: "List the nodes and the kernels they run", Args: cobra.NoArgs, RunE: a.run(a.nodeList)}
	show := &cobra.Command{Use: "show NAME", Short: "Show a node", Args: cobra.ExactArgs(1), RunE: a.run(a.nodeShow)}
	return noun("node", "Nodes and their kernels", list, show,
		a.nodeTokenCommand(), a.nodeRevokeCommand(), a.nodeCertificatesCommand())
}

func (a *app) nodeList(ctx context.Context, _ []string) error {
	response, err := call(ctx, a, api.NewNodeServiceClient, api.NodeServiceClient.ListNodes, &api.ListNodesRequest{})
	if err != nil {
		return err
	}
	nodes := response.GetNodes()
	return a.show(response, a.orNone(len(nodes), "no nodes: no agent has connected yet", func(p *page) {
		p.row("NODE", "PHASE", "RUNS", "WANTED", "PROVEN", "RELEASE", "JOB", "AGENT", "SLURM", "CAUSE")
		for _, n := range nodes {
			p.row(n.GetName(), nodePhase(n), kernelRef(n.GetRunningProfile(), n.GetRunningVersion()),
				kernelRef(n.GetDesiredProfile(), n.GetDesiredVersion()), yesNo(n.GetAttested()), n.GetRelease(),
				numberOrNone(n.GetJobId()), agentState(n), n.GetSlurmState(), nodeCause(n))
		}
	}))
}

func (a *app) nodeShow(ctx context.Context, args []string) error {
	response, err := call(ctx, a, api.NewNodeServiceClient, api.NodeServiceClient.GetNode, &api.GetNodeRequest{Name: args[0]})
	if err != nil {
		return err
	}
	n := response.GetNode()
	return a.show(n, func(p *page) {
		p.row("Node:", n.GetName())
		p.row("Phase:", nodePhase(n))
		p.row("Cause:", n.GetCause())
		p.row("Slurm:", n.GetSlurmState())
		p.row("Slurm's reason:", n.GetSlurmReason())
		p.row("Runs:", kernelRef(n.GetRunningProfile(), n.GetRunningVersion()))
		p.row("Proven:", yesNo(n.GetAttested()))
		p.row("Wanted:", kernelRef(n.GetDesiredProfile(), n.GetDesiredVersion()))
		p.row("Release:", n.GetRelease())
		p.row("Build id:", n.GetBuildId())
		p.row("Boot id:", n.GetBootId())
		p.row("Job:", numberOrNone(n.GetJobId()))
		p.row("Agent:", agentState(n))
		p.row("Last seen:", clock(n.GetLastSeen().AsTime()))
		p.row("Kexecs:", n.GetKexecs())
		i := n.GetInventory()
		p.row("Architecture:", i.GetArchitecture())
		p.row("Memory:", bytesOf(i.GetMemoryMib()<<20))
		p.row("CPUs:", i.GetCpus())
		p.row("Root:", i.GetRootDevice()+" "+i.GetRootFilesystem())
		p.line("Drivers in use:")
		for chunk := range slices.Chunk(i.GetDrivers(), 6) {
			p.line("  %s", joinReasons(chunk))
		}
	})
}

// nodeCause is why a node is not in order, from the product or from Slurm.
func nodeCause(n *api.Node) string {
	return cmp.Or(n.GetCause(), n.GetSlurmReason())
}

func nodePhase(n *api.Node) string { return convert.Word(n.GetPhase()) }

func agentState(n *api.Node) string {
	if n.GetConnected() {
		return "connected"
	}
	return "away"
}

func joinReasons(words []string) string { return strings.Join(words, " ") }
