// SPDX-License-Identifier: Apache-2.0

package history

import (
	"fmt"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/hostlist"
)

// Profile tells what happened between a profile and its next state. was is empty if there was none.
func Profile(was, is kb.Profile, now time.Time) []kb.ClusterEvent {
	var events []kb.ClusterEvent
	for _, change := range is.History[known(was.History, is.History):] {
		e := kb.ClusterEvent{At: change.At, Subject: kb.SubjectKernel, Event: change.What, Kernel: kb.Ref{Profile: is.Name, Version: change.Version},
			Who: change.Who, Why: change.Reason}
		if change.Version == 0 {
			e.Subject = kb.SubjectProfile
		}
		events = append(events, e)
	}
	for _, v := range is.Versions {
		before, err := was.Version(v.Kernel.Version)
		if err == nil && v.BootFailures > before.BootFailures {
			events = append(events, kb.ClusterEvent{At: now, Subject: kb.SubjectKernel, Event: kb.KernelBootFailed, Kernel: v.Kernel.Ref(), Who: broker,
				Why: fmt.Sprintf("%d boots failed since it was registered or released, on %s", v.BootFailures, hostlist.Compress(v.FailedOn))})
		}
	}
	return events
}

// known is how many changes at the begin of a history were in the one before, whose oldest may be gone by now.
func known(was, is []kb.Change) int {
	if len(was) == 0 {
		return 0
	}
	last := was[len(was)-1]
	for n := len(is); n > 0; n-- {
		if is[n-1] == last {
			return n
		}
	}
	return 0
}

// Rules tells what happened between the hardware ledger's rules and the next ones. who removes those that are gone.
func Rules(was, is []kb.HardwareRule, who string, now time.Time) []kb.ClusterEvent {
	before := map[string]kb.HardwareRule{}
	for _, r := range was {
		before[r.Name] = r
	}
	var events []kb.ClusterEvent
	add := func(event string, r kb.HardwareRule, who, why string) {
		events = append(events, kb.ClusterEvent{At: now, Subject: kb.SubjectRule, Event: event, Rule: r.Name, To: string(r.Kexec), Who: who, Why: why})
	}
	for _, r := range is {
		old, had := before[r.Name]
		delete(before, r.Name)
		switch {
		case !had:
			add(kb.RuleAdded, r, r.Author, r.Reason)
		case old != r:
			add(kb.RuleChanged, r, r.Author, r.Reason)
		}
	}
	for _, r := range was {
		if _, gone := before[r.Name]; gone {
			add(kb.RuleRemoved, r, who, "")
		}
	}
	return events
}
