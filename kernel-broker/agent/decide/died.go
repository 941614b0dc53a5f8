// SPDX-License-Identifier: Apache-2.0

package decide

import "time"

const (
	// DeathWindow is how long a slurmd that ended by itself counts.
	DeathWindow = 10 * time.Minute
	// MaxDeaths within DeathWindow are too many: slurmd is not started again.
	MaxDeaths = 5
	// firstDelay is between the first end and the next start; it doubles each time.
	firstDelay = 2 * time.Second
)

// Died adds an end to those that count.
func Died(deaths []time.Time, now time.Time) []time.Time {
	for len(deaths) > 0 && now.Sub(deaths[0]) > DeathWindow {
		deaths = deaths[1:]
	}
	return append(deaths, now)
}

// startsAgain reports whether a slurmd that ended by itself is started now.
func (d *decision) startsAgain() bool {
	deaths := d.o.Deaths
	if !d.o.Slurmd.Died || len(deaths) >= MaxDeaths {
		return false
	}
	if len(deaths) == 0 {
		return true // it ended while no agent was there
	}
	due := deaths[len(deaths)-1].Add(firstDelay << (len(deaths) - 1))
	if d.now.Before(due) {
		d.wakeAt(due)
		return false
	}
	return true
}
