// SPDX-License-Identifier: Apache-2.0

package slurm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

func TestLevelIsKept(t *testing.T) {
	denied, away := fmt.Errorf("no level: %w", kb.ErrDenied), errors.New("away")
	word, failure, asked, now := "", away, 0, time.Now()
	l := NewLevelProbe(os.Getuid(), func(_ context.Context, user string, uid uint32) (string, error) {
		if user == "" || uid != uint32(os.Getuid()) {
			t.Errorf("asked for %q, %d", user, uid)
		}
		asked++
		return word, failure
	})
	l.answers.Now = func() time.Time { return now }
	check := func(what string, count int, want error) {
		t.Helper()
		got, err := l.Health(t.Context())
		if !errors.Is(err, want) || (want == nil) != (got != "") || asked != count {
			t.Errorf("%s: %q, %v, asked %d times; want %v and %d", what, got, err, asked, want, count)
		}
	}
	check("nothing is known yet", 1, away)
	failure = denied
	check("silence is kept", 1, away)
	now = now.Add(keepSilence)
	check("but not for long", 2, denied)
	word, failure = "Administrator", nil
	now = now.Add(keepSilence)
	check("an answer is kept", 2, denied)
	now = now.Add(keepLevel)
	check("asked again", 3, nil)
	word, failure = "", away
	now = now.Add(keepLevel)
	check("away: what it said last", 4, nil)
	failure = denied
	now = now.Add(keepSilence)
	check("back", 5, denied)
}
