// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"slices"

	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/hostlist"
)

// nodeRows shows nodes of which the same is true together, as sinfo does; --output wide has a line for each.
func nodeRows(p *page, nodes []*api.Node) {
	p.head("NODES", "PHASE", "RUNS", "WANTED", "PROVEN", wide+"RELEASE", "JOB", "AGENT", "SLURM", below+"CAUSE")
	names := map[[9]string][]string{}
	var order [][9]string
	nodes = slices.SortedStableFunc(slices.Values(nodes), func(a, b *api.Node) int { return hostlist.Natural(a.GetName(), b.GetName()) })
	for _, n := range nodes {
		running, wanted := kernelRef(n.GetRunningProfile(), n.GetRunningVersion()), kernelRef(n.GetDesiredProfile(), n.GetDesiredVersion())
		if p.width > 0 && running == wanted {
			wanted = ""
		}
		key := [9]string{nodePhase(n), running, wanted, either(n.GetAttested(), "yes", "no"), n.GetRelease(), numberOrNone(n.GetJobId()),
			either(n.GetConnected(), "connected", "away"), n.GetSlurmState(), cmp.Or(n.GetCause(), n.GetSlurmReason())}
		if names[key] == nil {
			order = append(order, key)
		}
		names[key] = append(names[key], n.GetName())
		if p.width == 0 {
			nodeRow(p, n.GetName(), key)
		}
	}
	if p.width == 0 {
		return
	}
	for _, key := range order {
		nodeRow(p, hostlist.Compress(names[key]), key)
	}
}

func nodeRow(p *page, nodes string, key [9]string) {
	cells := []any{nodes}
	for _, cell := range key {
		cells = append(cells, cell)
	}
	p.row(cells...)
}
