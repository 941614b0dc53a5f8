// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"testing"
	"time"
)

func TestReboot(t *testing.T) {
	for name, c := range map[string]struct {
		set  func(*question)
		want Kind
	}{
		"desired":            {func(q *question) { q.desired.Reboot = true }, Reboot},
		"not on this stream": {func(q *question) { q.desired.Reboot, q.o.Fresh = true, false }, Wait},
		"no word":            {func(q *question) { q.desired = nil }, Wait},
		"taken a moment ago": {func(q *question) {
			q.desired.Reboot = true
			q.o.Hold[Reboot] = q.now.Add(time.Minute)
		}, Wait},
		"an image is loaded": {func(q *question) { q.desired.Reboot, q.o.Leftover = true, true }, Unload},
	} {
		q := serving()
		c.set(q)
		if a := Next(q.desired, q.o, q.now); a.Kind != c.want {
			t.Errorf("%s: %v, want %v", name, a.Kind, c.want)
		}
	}
}

// A boot that Slurm does not look for is claimed by no slurmd, the first one neither.
func TestKnownBootIsNotClaimed(t *testing.T) {
	for _, known := range []bool{true, false} {
		q := serving()
		q.o.Boot.Token, q.o.Slurmd = token(1), Slurmd{}
		q.desired.BootKnown, q.desired.NoBootAwaited = known, known
		q.written()
		if a := Next(q.desired, q.o, q.now); a.Kind != StartSlurmd || a.Claim == known {
			t.Errorf("known %v: %v, claims %v", known, a.Kind, a.Claim)
		}
	}
}
