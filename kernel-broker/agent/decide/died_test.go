// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"testing"
	"time"
)

func deathsBefore(now time.Time, ages ...time.Duration) []time.Time {
	var all []time.Time
	for _, age := range ages {
		all = append(all, now.Add(-age))
	}
	return all
}

// TestDiedSlurmd: slurmd that ended by itself is started again, later each time and not for ever.
func TestDiedSlurmd(t *testing.T) {
	for _, c := range []struct {
		name  string
		set   func(*question)
		want  Kind
		claim bool
		wake  time.Duration
	}{
		{"just now", func(q *question) { q.o.Deaths = deathsBefore(start, 0) }, Wait, false, 2 * time.Second},
		{"the delay is over", func(q *question) { q.o.Deaths = deathsBefore(start, 2*time.Second) }, StartSlurmd, true, 0},
		{"no boot is awaited", func(q *question) {
			q.o.Deaths, q.desired.NoBootAwaited = deathsBefore(start, 2*time.Second), true
		}, StartSlurmd, false, 0},
		{"a third time", func(q *question) {
			q.o.Deaths = deathsBefore(start, 60*time.Second, 30*time.Second, 3*time.Second)
		}, Wait, false, 5 * time.Second},
		{"too often", func(q *question) { q.o.Deaths = deathsBefore(start, 599, 500, 400, 300, 200) }, Wait, false, 0},
		{"too often, and the broker asks for another start", func(q *question) {
			q.o.Deaths, q.desired.SlurmdStart = deathsBefore(start, 599, 500, 400, 300, 200), 2
		}, StartSlurmd, true, 0},
		{"while no agent was there", func(*question) {}, StartSlurmd, true, 0},
		{"the broker is away and may have seen a registration", func(q *question) { q.o.Fresh = false }, StartSlurmd, false, 0},
		{"the broker is away and slurmctld waits for a boot", func(q *question) { q.o.Fresh, q.o.Awaited = false, true }, StartSlurmd, true, 0},
		{"no broker since the agent's start", func(q *question) { q.desired, q.o.Fresh, q.now = nil, false, q.o.GraceEnds }, StartSlurmd, false, 0},
		{"an administrator stopped it", func(q *question) { q.o.Slurmd.Died = false }, Wait, false, 0},
		{"slurmd is not allowed", func(q *question) { q.desired.SlurmdAllowed = false }, Wait, false, 0},
		{"the boot is not confirmed", func(q *question) { q.o.Boot.Token, q.desired.Attested = token(1), false; q.written() }, Wait, false, 0},
		{"another kernel is wanted", func(q *question) { q.wants(fast, token(1)) }, Fetch, false, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			q := serving()
			q.o.Slurmd.Running, q.o.Slurmd.Died = false, true
			c.set(q)
			got := Next(q.desired, q.o, q.now)
			if got.Kind != c.want || got.Claim != c.claim {
				t.Errorf("%v, claim %v, want %v, %v", got.Kind, got.Claim, c.want, c.claim)
			}
			if c.wake != 0 && !got.Wake.Equal(start.Add(c.wake)) || c.wake == 0 && !got.Wake.IsZero() {
				t.Errorf("wakes at %v, want %v after %v", got.Wake, c.wake, start)
			}
		})
	}
}

// TestDeathsThatCount: those of long ago do not.
func TestDeathsThatCount(t *testing.T) {
	if got := Died(deathsBefore(start, DeathWindow+1, DeathWindow, 1), start); len(got) != 3 {
		t.Errorf("%v count, want 3", got)
	}
}
