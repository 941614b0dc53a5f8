// SPDX-License-Identifier: Apache-2.0

package slurm

import (
	"context"
	"errors"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// fakePrivacy is a slurmctld with PrivateData and operators.
type fakePrivacy struct {
	private   bool
	operators map[string]bool
	err       error
	asked     int
}

func (s *fakePrivacy) PrivateJobs(context.Context) (bool, error) {
	s.asked++
	return s.private, s.err
}

func (s *fakePrivacy) Operates(_ context.Context, user string, _ uint32) (bool, error) {
	s.asked++
	return s.operators[user], s.err
}

func userByUID(_ context.Context, uid uint32) (kb.User, error) {
	name := map[uint32]string{1: "alice", 2: "olga"}[uid]
	if name == "" {
		return kb.User{}, kb.ErrNotFound
	}
	return kb.User{UID: uid, Name: name}, nil
}

func TestPrivacy(t *testing.T) {
	s, now := &fakePrivacy{private: true, operators: map[string]bool{"olga": true}}, time.Now()
	p := NewPrivacy(s, userByUID)
	p.private.Now = func() time.Time { return now }
	p.operators.Now = p.private.Now
	check := func(what string, uid uint32, want bool, asked int) {
		t.Helper()
		s.asked = 0
		if got := p.ShowsOthers(t.Context(), uid); got != want || s.asked != asked {
			t.Errorf("%s: %v with %d questions, want %v with %d", what, got, s.asked, want, asked)
		}
	}
	check("a plain user", 1, false, 2)
	check("again", 1, false, 0)
	check("an operator", 2, true, 1)
	check("one without a name", 3, false, 0)
	now = now.Add(keepPrivacy)
	s.private, s.err = false, errors.New("slurmctld is away")
	check("slurmctld is away: as it was", 1, false, 2)
	check("and for operators", 2, true, 1)
	check("it is not asked at once again", 2, true, 0)
	now = now.Add(keepSilence)
	s.err = nil
	check("no longer private", 1, true, 1)
	s.private = true
	p.Forget()
	check("after a reload", 1, false, 2)
}

// A slurmctld that has not said anything yet has not said that jobs are public.
func TestPrivacyBeforeTheFirstAnswer(t *testing.T) {
	s := &fakePrivacy{err: errors.New("slurmctld is away")}
	if NewPrivacy(s, userByUID).ShowsOthers(t.Context(), 1) {
		t.Error("others' jobs are shown before slurmctld said that they may be")
	}
}
