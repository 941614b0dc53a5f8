// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// anyDesired is whatever a broker may say, the odd as well.
func anyDesired(t *rapid.T, generation uint64, now time.Time) kb.DesiredState {
	w := kb.DesiredState{
		Generation:    generation,
		Attested:      rapid.Bool().Draw(t, "attested"),
		SlurmdAllowed: rapid.Bool().Draw(t, "allowed"),
		LoadOnly:      rapid.Bool().Draw(t, "load only"),
		SlurmdStart:   rapid.Uint64Range(0, 3).Draw(t, "start"),
	}
	if rapid.Bool().Draw(t, "job") {
		w.Jobs = []uint32{12}
	}
	if rapid.Bool().Draw(t, "later") {
		w.SlurmdNotBefore = now.Add(2 * time.Second)
	}
	// A broker that names what it does not vouch for is odd, and possible.
	if w.Attested || rapid.IntRange(0, 4).Draw(t, "claims") == 0 {
		w.Running = kb.Ref{Profile: rapid.SampledFrom([]string{"stock", "mitgcm"}).Draw(t, "running"), Version: 1}
	}
	if rapid.IntRange(0, 3).Draw(t, "switch") > 0 {
		k := rapid.SampledFrom([]kb.Kernel{stock, fast}).Draw(t, "kernel")
		switch rapid.IntRange(0, 19).Draw(t, "flaw") {
		case 0:
			k.Drivers = nil
		case 1:
			k.Architecture = "riscv64"
		}
		w.Kernel = &k
		w.Token = rapid.SampledFrom([]string{token(1), token(2), token(3), token(4), token(5), "", "odd"}).Draw(t, "token")
	}
	return w
}

// TestRulesHold throws everything at the judge, in any order.
func TestRulesHold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, rapid.SampledFrom([]string{"", token(1)}).Draw(t, "boot"))
		generation := uint64(0)
		works := func(k Kind) bool { return rapid.IntRange(0, 9).Draw(t, k.String()) > 0 }
		for range rapid.IntRange(1, 150).Draw(t, "steps") {
			switch rapid.IntRange(0, 24).Draw(t, "event") {
			case 0:
				generation++
				w.receive(anyDesired(t, generation, w.now))
			case 1: // the same desired under a new number
				if w.desired != nil {
					again := *w.desired
					generation++
					again.Generation = generation
					w.receive(again)
				}
			case 2:
				w.disconnect()
			case 3:
				if w.desired != nil {
					w.receive(*w.desired)
				}
			case 4:
				w.now = w.now.Add(time.Duration(rapid.IntRange(0, 40_000).Draw(t, "ms")) * time.Millisecond)
			case 5: // by other hands, down or up
				w.o.Slurmd.Running = rapid.Bool().Draw(t, "slurmd")
				w.o.Slurmd.Died = !w.o.Slurmd.Running && w.o.Slurmd.Mark == Started && rapid.Bool().Draw(t, "died")
				if w.o.Slurmd.Died {
					w.o.Deaths = Died(w.o.Deaths, w.now)
				}
			case 6:
				w.restart()
			default:
				w.step(works)
			}
		}
	})
}

// TestGetsThere: with a desired that stays and luck, the agent reaches it in a few
// steps and then rests.
func TestGetsThere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, rapid.SampledFrom([]string{"", token(1)}).Draw(t, "boot"))
		generation := uint64(0)
		// Some past, so that it begins anywhere.
		for range rapid.IntRange(0, 12).Draw(t, "past") {
			if rapid.Bool().Draw(t, "hear") {
				generation++
				w.receive(anyDesired(t, generation, w.now))
			}
			w.step(func(Kind) bool { return rapid.Bool().Draw(t, "works") })
		}
		generation++
		desired := anyDesired(t, generation, w.now)
		w.receive(desired)
		target, switching := Wanted(&desired, w.o.Boot)
		if switching {
			_, err := (&decision{desired: &desired, o: w.o}).refusal(target)
			switching = err == nil
		}
		stays, boots := switching && desired.LoadOnly, false
		var last Action
		for range 20 {
			w.now = w.now.Add(10 * time.Second) // past every hold and not-before
			if last = w.step(func(Kind) bool { return true }); last.Kind == Wait || last.Kind == Execute {
				boots = last.Kind == Execute
				break
			}
		}
		switch {
		case boots != (switching && !stays):
			t.Fatalf("boots %v, is to switch %v, to stay %v\n%s", boots, switching, stays, lines(w.trace))
		case boots:
			return
		case last.Kind != Wait:
			t.Fatalf("never rests\n%s", lines(w.trace))
		case stays:
			if w.holds == nil || !w.holds.Same(target) {
				t.Fatalf("%+v is loaded, should %+v\n%s", w.holds, target, lines(w.trace))
			}
			return
		}
		may := desired.SlurmdAllowed && (desired.Attested || w.o.Boot.Token == "")
		died := w.o.Slurmd.Mark == Started && w.o.Slurmd.Start >= desired.SlurmdStart
		if w.o.Slurmd.Running != may && !(may && died) {
			t.Fatalf("slurmd runs %v, may %v\n%s", w.o.Slurmd.Running, may, lines(w.trace))
		}
		if may && w.o.Slurmd.Start < desired.SlurmdStart {
			t.Fatalf("start %d was not carried out\n%s", desired.SlurmdStart, lines(w.trace))
		}
		if w.holds != nil {
			t.Fatalf("something is still loaded\n%s", lines(w.trace))
		}
	})
}
