// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/hostlist"
)

func kernelChecks() []check {
	return []check{
		{"stock", "the catalog has the distribution's kernel", stock},
		{"quarantine", "no kernel is quarantined", quarantine},
		{"default-version", "jobs may choose the default version of each profile", defaultVersion},
		{"boots-somewhere", "each default version fits a node", bootsSomewhere},
		{"fits-nodes", "each version fits every node", fitsNodes},
		{"ignored-arguments", "no kernel ignores its arguments", ignoredArguments},
		{"signatures", "kernels are signed where signatures are asked for", signatures},
	}
}

// usable are the versions that jobs may choose.
func usable(profiles []kb.Profile) iter.Seq[kb.ProfileVersion] {
	return func(yield func(kb.ProfileVersion) bool) {
		for _, p := range profiles {
			for _, v := range p.Versions {
				if v.Quarantine == nil && v.Retired == nil && !yield(v) {
					return
				}
			}
		}
	}
}

func stock(e *examination) {
	profiles, ok := need(e, e.Profiles)
	if ok && !slices.ContainsFunc(profiles, func(p kb.Profile) bool { return p.Name == kb.StockProfile }) {
		e.wrong(kb.StockProfile, "there is no such profile: no node can return from a job's kernel", "kernel-factory distribution, then kernelctl profile apply; docs/ops/install.md, section 4")
	}
}

func quarantine(e *examination) {
	profiles, ok := need(e, e.Profiles)
	if !ok {
		return
	}
	for _, p := range profiles {
		for _, v := range p.Versions {
			if v.Quarantine != nil && v.Retired == nil {
				ref := v.Kernel.Ref().String()
				e.warn(ref, "jobs cannot choose it: "+v.Quarantine.Reason, "find the cause, then kernelctl profile release "+ref+", or kernelctl profile retire "+ref)
			}
		}
	}
}

func defaultVersion(e *examination) {
	profiles, ok := need(e, e.Profiles)
	if !ok {
		return
	}
	for _, p := range profiles {
		v, err := p.Version(0)
		if p.Retired() || err == nil && v.Quarantine == nil && v.Retired == nil {
			continue
		}
		why := "it is quarantined"
		switch {
		case err != nil:
			why = err.Error()
		case v.Retired != nil:
			why = "it is retired"
		}
		e.wrong(p.Name, fmt.Sprintf("jobs that name no version get version %d: %s", p.DefaultVersion, why), "kernelctl profile promote "+p.Name+"@VERSION, or kernelctl profile rollback "+p.Name)
	}
}

// misfits are the nodes that refuse a kernel, by the cause. all is how many nodes have told their hardware.
func misfits(k kb.Kernel, nodes []Node) (by map[string][]string, all int) {
	by = map[string][]string{}
	for _, n := range nodes {
		if n.Inventory.Architecture == "" {
			continue
		}
		all++
		if err := k.CheckFits(n.Inventory); err != nil {
			cause := strings.TrimSuffix(err.Error(), ": "+kb.ErrFailedPrecondition.Error())
			cause = strings.TrimPrefix(cause, fmt.Sprintf("kernel %q: ", k.Ref()))
			by[cause] = append(by[cause], n.Name)
		}
	}
	return by, all
}

const misfitRemedy = "a fragment for the driver in its recipe, and a new version (docs/ops/hardware.md); or keep its jobs off those nodes"

// fits is the common part: the versions, the nodes, and whether any node has reported its hardware.
func fits(e *examination) ([]kb.Profile, []Node, bool) {
	profiles, ok := need(e, e.Profiles)
	if !ok {
		return nil, nil, false
	}
	nodes, ok := needNodes(e)
	if ok && !slices.ContainsFunc(nodes, func(n Node) bool { return n.Inventory.Architecture != "" }) {
		e.skip("no node has reported its hardware")
		return nil, nil, false
	}
	return profiles, nodes, ok
}

func bootsSomewhere(e *examination) {
	profiles, nodes, ok := fits(e)
	if !ok {
		return
	}
	for _, p := range profiles {
		v, err := p.Version(0)
		if err != nil || p.Retired() {
			continue
		}
		if by, all := misfits(v.Kernel, nodes); count(by) == all {
			cause := slices.Sorted(maps.Keys(by))[0]
			e.wrong(v.Kernel.Ref().String(), "no node can boot the default version: "+cause, misfitRemedy)
		}
	}
}

func count(by map[string][]string) (n int) {
	for _, list := range by {
		n += len(list)
	}
	return n
}

// fitsNodes leaves out default versions that fit nowhere, which another check names.
func fitsNodes(e *examination) {
	profiles, nodes, ok := fits(e)
	if !ok {
		return
	}
	for v := range usable(profiles) {
		by, all := misfits(v.Kernel, nodes)
		if count(by) == all && isDefault(profiles, v) {
			continue
		}
		for _, cause := range slices.Sorted(maps.Keys(by)) {
			e.warn(v.Kernel.Ref().String(), hostlist.Compress(by[cause])+": "+cause, misfitRemedy)
		}
	}
}

func isDefault(profiles []kb.Profile, v kb.ProfileVersion) bool {
	return slices.ContainsFunc(profiles, func(p kb.Profile) bool {
		return p.Name == v.Kernel.Profile && p.DefaultVersion == v.Kernel.Version
	})
}

func ignoredArguments(e *examination) {
	profiles, ok := need(e, e.Profiles)
	if !ok {
		return
	}
	for v := range usable(profiles) {
		ref := v.Kernel.Ref()
		fact, asked := e.Ignored[ref]
		if !asked {
			continue // it has no argument that needs a configuration
		}
		if ignores, ok := need(e, fact); ok && ignores != "" {
			e.warn(ref.String(), ignores, "a fragment that sets the option in its recipe, and a new version; or one without the argument (docs/ops/kernels.md)")
		}
	}
}

// Arguments that a kernel gets from its version and from the node, and that need a configuration.
func Arguments(k kb.Kernel) []string {
	var list []string
	for _, a := range slices.Concat(k.Arguments, k.ParametersOfNode()) {
		if kb.HonouredBy(a) != nil {
			list = append(list, a)
		}
	}
	return list
}

func signatures(e *examination) {
	profiles, ok := need(e, e.Profiles)
	if !ok {
		return
	}
	var unsigned []string
	for v := range usable(profiles) {
		if len(v.Envelope) == 0 && !v.Kernel.Ref().IsStock() {
			unsigned = append(unsigned, v.Kernel.Ref().String())
		}
	}
	list, known := "", false
	if f := e.BrokerFile.Value; f != nil && f.Error == "" {
		list = f.TrustList
	}
	if a := e.Agent.Value; a != nil && a.Error == "" {
		list, known = cmp.Or(a.TrustList, list), true
	}
	if len(unsigned) > 0 && list == "" && !known {
		e.skip("whether nodes ask for signatures is in their agent.yaml: run it there, too")
	}
	for _, ref := range unsigned {
		if list != "" {
			e.wrong(ref, "it has no signature, and "+list+" asks for one: nodes refuse it", "kernelctl kernel sign "+ref)
		}
	}
}
