// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"maps"
	"slices"
	"strings"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// FeaturePrefix begins each feature that the broker sets. All others are the site's.
const FeaturePrefix = "kernel="

// featuresEvery is how often slurmctld is told of kernels at most: each command takes its locks, and has many nodes looked at again.
const featuresEvery = 5 * time.Second

// features has each node's proven kernel shown as its active feature. slurmctld takes no active feature that is not available,
// so a kernel becomes available first: on all nodes with the same features by one command, since slurmctld splits its
// configuration of nodes whose available features differ. At a wave of jobs nodes are shown together, at intervals.
func (d *decision) features() {
	if d.in.Now.Sub(d.in.FeaturesSet) < featuresEvery {
		return
	}
	active, missing := map[string][]string{}, map[string][]string{}
	for _, name := range d.order {
		if !d.unshown(d.nodes[name]) {
			continue
		}
		s, _ := d.slurmNode(name)
		if want := kernelFeature(d.nodes[name]); want != "" && !slices.Contains(s.Available, want) {
			all := strings.Join(s.Available, ",")
			missing[all] = append(missing[all], want)
		} else {
			site, _ := splitFeatures(s.Features)
			key := setFeatures(s.Available, site, want).Key()
			active[key] = append(active[key], name)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(active)) {
		names := active[key]
		s, _ := d.slurmNode(names[0])
		site, _ := splitFeatures(s.Features)
		d.setFeatures(names, setFeatures(s.Available, site, kernelFeature(d.nodes[names[0]])))
	}
	for _, all := range slices.Sorted(maps.Keys(missing)) {
		d.makeAvailable(all, missing[all])
	}
}

// makeAvailable adds kernels to the available features of all nodes that have these. Nodes that run another kernel show it
// again after the next poll.
func (d *decision) makeAvailable(all string, kernels []string) {
	same := map[string][]string{}
	for name := range d.in.Nodes {
		if s, known := d.slurmNode(name); known && strings.Join(s.Available, ",") == all {
			site, _ := splitFeatures(s.Features)
			key := strings.Join(site, ",")
			same[key] = append(same[key], name)
		}
	}
	site, have := splitFeatures(strings.Split(all, ","))
	kernels = slices.Compact(slices.Sorted(slices.Values(slices.Concat(have, kernels))))
	available := strings.TrimPrefix(strings.Join(append(site, kernels...), ","), ",") // all may be empty
	for _, active := range slices.Sorted(maps.Keys(same)) {
		d.setFeatures(same[active], Action{Kind: SetFeatures, Available: available, Text: active})
	}
}

func setFeatures(available, site []string, kernel string) Action {
	if kernel != "" {
		site = append(site, kernel)
	}
	return Action{Kind: SetFeatures, Available: strings.Join(available, ","), Text: strings.Join(site, ",")}
}

func (d *decision) setFeatures(names []string, a Action) {
	slices.Sort(names)
	a.Nodes = names
	d.act(a)
}

// unshown reports whether slurmctld is still to show what a node runs.
func (d *decision) unshown(n *kb.Node) bool {
	s, known := d.slurmNode(n.Name)
	if !d.in.Config.ActiveFeatures || !known {
		return false
	}
	_, shown := splitFeatures(s.Features)
	return strings.Join(shown, ",") != kernelFeature(n)
}

// kernelFeature names the profile that a node is proven to run; none on stock.
func kernelFeature(n *kb.Node) string {
	if ref := n.Running.Ref; ref.Profile != "" && !ref.IsStock() {
		return FeaturePrefix + ref.Profile
	}
	return ""
}

// splitFeatures tells the site's features from the broker's.
func splitFeatures(all []string) (site, kernels []string) {
	for _, f := range all {
		if strings.HasPrefix(f, FeaturePrefix) {
			kernels = append(kernels, f)
		} else {
			site = append(site, f)
		}
	}
	return site, kernels
}
