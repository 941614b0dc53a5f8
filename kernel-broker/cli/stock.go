// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
)

// mostLacking nodes are named.
const mostLacking = 8

// confirmStock requires a confirmation before a kernel becomes a version of stock: every node returns to it after its job,
// and a node that cannot run it is lost.
func (r registration) confirmStock() error {
	switch {
	case r.replaceStock && r.profile != kb.StockProfile:
		return usageError{fmt.Errorf("--replace-stock goes with --profile %s", kb.StockProfile)}
	case !r.replaceStock && r.profile == kb.StockProfile:
		return fmt.Errorf("profile %q is for the distribution's own kernel, which nodes boot after a reset and after each job; register other kernels in their own profile. "+
			"--replace-stock registers it anyway, and with --dry-run lists nodes that would lack a driver: %w", r.profile, kb.ErrFailedPrecondition)
	}
	return nil
}

// noteMissingDrivers lists nodes that lack a driver in a new version of stock.
func (a *app) noteMissingDrivers(ctx context.Context, k *api.KernelSpec) error {
	if k.GetProfile() != kb.StockProfile {
		return nil
	}
	lacking, nodes, err := a.missingDrivers(ctx, k)
	if err != nil {
		return err
	}
	what := fmt.Sprintf("once kernel %s (%s) is the default every node returns to it", refOfSpec(k), k.GetRelease())
	switch more := len(lacking) - mostLacking; {
	case nodes == 0:
		a.say("note: %s; no node has reported its drivers yet", what)
	case len(lacking) == 0:
		a.say("note: %s; it has the drivers that the %d nodes use", what, nodes)
	case more > 0:
		a.say("warning: %s, and it lacks drivers that %d of %d nodes use: %s; and %d more", what, len(lacking), nodes, strings.Join(lacking[:mostLacking], "; "), more)
	default:
		a.say("warning: %s, and it lacks drivers that %d of %d nodes use: %s", what, len(lacking), nodes, strings.Join(lacking, "; "))
	}
	return nil
}

// missingDrivers returns nodes that use drivers missing in a kernel.
func (a *app) missingDrivers(ctx context.Context, k *api.KernelSpec) (lacking []string, nodes int, err error) {
	response, err := call(ctx, a, api.NewNodeServiceClient, api.NodeServiceClient.ListNodes, &api.ListNodesRequest{})
	if err != nil {
		return nil, 0, err
	}
	for _, n := range response.GetNodes() {
		if len(n.GetInventory().GetDrivers()) == 0 {
			continue
		}
		nodes++
		var missing []string
		for _, driver := range n.GetInventory().GetDrivers() {
			if !slices.Contains(k.GetDrivers(), driver) {
				missing = append(missing, driver)
			}
		}
		if len(missing) > 0 {
			lacking = append(lacking, n.GetName()+" ("+strings.Join(missing, " ")+")")
		}
	}
	return lacking, nodes, nil
}
