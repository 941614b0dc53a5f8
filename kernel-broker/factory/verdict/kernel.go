// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Run is one run of a workload, by what makes its data.
type Run struct {
	Workload string `json:"workload"`
	Seed     int64  `json:"seed"`
	Size     int64  `json:"size"`
}

// Kernel is what a verdict must know of a kernel besides its samples.
type Kernel struct {
	Name string `json:"name"`
	// Mitigations are facts about the processor mitigations that were on
	// while it was measured, each a flaw and what is done about it, as the
	// kernel says itself ("meltdown: Mitigation: PTI"). Two kernels are
	// compared as equals only when these are the same, but for what only a
	// host of virtual machines does.
	Mitigations []string `json:"mitigations"`
	// Trained lists the runs whose profile or trace went into the kernel.
	Trained []Run `json:"trained,omitempty"`
}

// Application is a program, the run that its kernels are tested with, and the
// kernel that was made for it.
type Application struct {
	Name string `json:"name"`
	Test Run    `json:"test"`
	// Kernel that was made for it; empty for a workload that only takes part.
	Kernel string `json:"kernel,omitempty"`
}

// Rules of a verdict. They stand in each report, so that it can be repeated.
type Rules struct {
	// Significance below which a difference of inexact samples counts.
	Significance float64 `json:"significance"`
	// LeastRepetitions of inexact samples.
	LeastRepetitions int `json:"least_repetitions"`
	// Resolution is the share up to which a difference says nothing, however
	// exactly it was counted: an exact count repeats on one build, and another
	// build of the very same code lies elsewhere and meets its interrupts at
	// other places.
	Resolution float64 `json:"resolution"`
	// LeastGain, as a share, that makes a kernel worth its switch. With 0
	// each gain does that is more than the spread and the resolution.
	LeastGain float64 `json:"least_gain"`
	// UnequalMitigations is the site's policy that a kernel may win although
	// it does other things about the processor's flaws than the one that it
	// has to beat, or than the distribution's own. The comparisons still say
	// so in their titles.
	UnequalMitigations bool `json:"unequal_mitigations,omitempty"`
}

// DefaultRules: a t-test at 0.05, as in the papers that this follows. Two
// builds that differ in a host name were counted to differ by 0.02 % in a short
// run; the resolution is a good distance from that.
func DefaultRules() Rules {
	return Rules{Significance: 0.05, LeastRepetitions: 3, Resolution: 0.001}
}

// Check refuses rules by which everything or nothing would win.
func (r Rules) Check() error {
	switch {
	case !(r.Significance > 0 && r.Significance < 1):
		return fmt.Errorf("significance %v is not between 0 and 1", r.Significance)
	case r.LeastRepetitions < 2:
		return fmt.Errorf("least repetitions %d: a spread needs 2", r.LeastRepetitions)
	case !(r.Resolution >= 0 && r.Resolution < 1):
		return fmt.Errorf("resolution %v is not from 0 to below 1", r.Resolution)
	case !(r.LeastGain >= 0 && r.LeastGain < 1):
		return fmt.Errorf("least gain %v is not from 0 to below 1", r.LeastGain)
	}
	return nil
}

// atMitigations begins the words of a comparison that is not at equal ones.
const atMitigations = "unequal mitigations: "

// unequalMitigations names the flaws about which two kernels do different
// things, or nothing.
func unequalMitigations(a, b Kernel) string {
	flaws := flawsApart(a, b)
	if len(flaws) == 0 {
		return ""
	}
	return atMitigations + strings.Join(flaws, ", ")
}

// whatIsUnequal says what each of the two does.
func whatIsUnequal(a, b Kernel) string {
	ofA, ofB := counted(a.Mitigations), counted(b.Mitigations)
	var parts []string
	for _, flaw := range flawsApart(a, b) {
		parts = append(parts, fmt.Sprintf("%s is %q on %s, %q on %s", flaw, ofA[flaw], a.Name, ofB[flaw], b.Name))
	}
	return atMitigations + strings.Join(parts, "; ")
}

func flawsApart(a, b Kernel) []string {
	ofA, ofB := counted(a.Mitigations), counted(b.Mitigations)
	flaws := map[string]bool{}
	for _, all := range []map[string]string{ofA, ofB} {
		for flaw := range all {
			stateA, hasA := ofA[flaw]
			stateB, hasB := ofB[flaw]
			if stateA != stateB || hasA != hasB {
				flaws[flaw] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(flaws))
}

// Flaws that only concern a host of virtual machines. The kernel names them as
// files in /sys/devices/system/cpu/vulnerabilities, and says another thing of
// them as soon as it could be such a host (KVM built, even as a module that
// is never loaded). No other program meets these mitigations.
var hostOnly = []string{"itlb_multihit", "vmscape"}

// counted is what is done about each flaw, without what is for hosts of virtual
// machines. A fact of another form stands for itself.
func counted(mitigations []string) map[string]string {
	states := map[string]string{}
	for _, one := range mitigations {
		flaw, state, _ := strings.Cut(one, ": ")
		if slices.Contains(hostOnly, flaw) {
			continue
		}
		if flaw == "l1tf" {
			state, _, _ = strings.Cut(state, "; VMX:")
		}
		states[flaw] = state
	}
	return states
}

// trainedOn says that a kernel was made from the very data of a test. A run
// with the seed or with the size of the test is too near to it.
func trainedOn(k Kernel, test Run) string {
	for _, run := range k.Trained {
		if run.Workload != test.Workload {
			continue
		}
		same := ""
		switch {
		case run.Seed == test.Seed && run.Size == test.Size:
			same = fmt.Sprintf("seed %d and size %d", run.Seed, run.Size)
		case run.Seed == test.Seed:
			same = fmt.Sprintf("seed %d", run.Seed)
		case run.Size == test.Size:
			same = fmt.Sprintf("size %d", run.Size)
		default:
			continue
		}
		return fmt.Sprintf("tested on its training data: %s was trained on %s with %s", k.Name, test.Workload, same)
	}
	return ""
}
