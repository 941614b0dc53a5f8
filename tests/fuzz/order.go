package fuzz

import (
	"slices"
	"strings"
	"time"
)

// exposed are the packages that read what others send, widest open first: what
// any user may say, what the network and nodes send, what is signed elsewhere,
// what a guest leaves behind. All others read what belongs to the site.
var exposed = []string{
	"kernel-broker/rpc", "kernel-broker/hostlist", "kernel-broker/agent/local", "kernel-broker/credential", "kernel-broker/munge",
	"kernel-broker/agent/link", "kernel-broker/hook", "kernel-broker", "slurm-plugin", "kernel-broker/slurm", "kernel-broker/mtls",
	"kernel-broker/signing", "kernel-broker/signing/keys", "kernel-broker/agent/enrol", "kernel-broker/agent/runs",
	"kernel-broker/factory/vm", "kernel-broker/factory/pipeline", "kernel-broker/factory/gcov", "kernel-broker/profiling",
	"kernel-broker/profiling/report", "kernel-broker/policyfile", "kernel-broker/artifact", "kernel-broker/catalog",
	"kernel-broker/factory/workload", "kernel-broker/factory/admission", "kernel-broker/agent/trust",
}

// Order puts first what never had its time with any code, then what had it with
// other code than there is, and of each the most exposed: a long run may be ended.
func Order(targets []Target, ledger Ledger, codes map[string]string, wanted time.Duration, clock Clock) []Target {
	rank := func(t Target) int {
		place := slices.Index(exposed, t.Package)
		if place < 0 {
			place = len(exposed)
		}
		switch {
		case ledger.Missing(t, codes[t.String()], wanted, clock) == 0:
			place += 2 * (len(exposed) + 1)
		case ledger[t.String()].ever(clock) >= wanted:
			place += len(exposed) + 1
		}
		return place
	}
	sorted := slices.Clone(targets)
	slices.SortStableFunc(sorted, func(a, b Target) int {
		if order := rank(a) - rank(b); order != 0 {
			return order
		}
		return strings.Compare(a.String(), b.String())
	})
	return sorted
}
