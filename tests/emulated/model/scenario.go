// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"time"

	"pgregory.net/rapid"
)

// Scenario is a cluster's settings and what is done to it.
type Scenario struct {
	ReturnToService int
	// ResetCommand says whether the broker can reset nodes, PowerSaving whether
	// Slurm powers nodes down and up.
	ResetCommand, PowerSaving bool
	BootTime                  time.Duration
	Actions                   []Action
}

// Action is one step: who does what is its name's; picks choose among the jobs,
// nodes and variants that there are at that moment.
type Action struct {
	Do   string
	Pick [4]int
	// Pause passes after it.
	Pause time.Duration
}

// String is the action as it was drawn.
func (a Action) String() string { return fmt.Sprintf("%s%v +%v", a.Do, a.Pick, a.Pause) }

// picks is how many choices a pick has, more than there is to choose from.
const picks = 840

// scenarios draws scenarios of so many actions. Without is a list of actions
// that are not drawn.
func scenarios(length int, without map[string]bool) *rapid.Generator[Scenario] {
	var names []string
	for _, k := range kinds {
		if !without[k.name] {
			for range k.weight {
				names = append(names, k.name)
			}
		}
	}
	pick := rapid.IntRange(0, picks-1)
	action := rapid.Custom(func(t *rapid.T) Action {
		a := Action{Do: rapid.SampledFrom(names).Draw(t, "do")}
		for i := range a.Pick {
			a.Pick[i] = pick.Draw(t, "pick")
		}
		a.Pause = rapid.SampledFrom(pauses).Draw(t, "pause")
		return a
	})
	return rapid.Custom(func(t *rapid.T) Scenario {
		return Scenario{
			ReturnToService: rapid.IntRange(0, 2).Draw(t, "ReturnToService"),
			ResetCommand:    rapid.Bool().Draw(t, "reset command"),
			PowerSaving:     rapid.IntRange(0, 3).Draw(t, "power saving") == 3,
			BootTime:        rapid.SampledFrom([]time.Duration{200, 500, 1500}).Draw(t, "boot time") * time.Millisecond,
			Actions:         rapid.SliceOfN(action, length, length).Draw(t, "actions"),
		}
	})
}

// pauses between actions: the phases of a switch last up to some seconds.
var pauses = []time.Duration{
	0, 0, 100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond, 700 * time.Millisecond,
	time.Second, 1500 * time.Millisecond, 2500 * time.Millisecond,
}

// kind is a kind of action. It returns what it did, "" if there was nothing to do.
type kind struct {
	name   string
	weight int
	do     func(*run, [4]int) (string, error)
}

var kinds []kind

func init() {
	kinds = append(kinds, userKinds...)
	kinds = append(kinds, adminKinds...)
	kinds = append(kinds, faultKinds...)
}

func kindNamed(name string) (kind, bool) {
	for _, k := range kinds {
		if k.name == name {
			return k, true
		}
	}
	return kind{}, false
}
