// SPDX-License-Identifier: Apache-2.0

package authz

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/audit"
)

// host is who lives on the broker's host, or that nobody can say.
type host struct{ err error }

func (h *host) ByUID(_ context.Context, uid uint32) (kb.User, error) {
	switch {
	case h.err != nil:
		return kb.User{}, h.err
	case uid == 7:
		return kb.User{UID: 7, Name: "alice", Groups: []string{"ocean"}}, nil
	}
	return kb.User{}, kb.ErrNotFound
}

func (h *host) ByName(ctx context.Context, _ string) (kb.User, error) { return h.ByUID(ctx, 7) }

// tape is a recorder that can be full.
type tape struct {
	entries []audit.Entry
	waited  []bool
	err     error
	full    bool
}

func (r *tape) HasSpace() bool { return !r.full }

func (r *tape) Append(e audit.Entry, wait bool) (uint64, error) {
	if r.err != nil {
		return 0, r.err
	}
	r.entries, r.waited = append(r.entries, e), append(r.waited, wait)
	return uint64(len(r.entries)), nil
}

const ocean = "profiles:\n  mitgcm:\n    use:\n      - groups: [ocean]\n"

func newGuard(t *testing.T, text string) (*Authorizer, *host, *tape, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "policy.yaml")
	write(t, path, text)
	h, r := &host{}, &tape{}
	g, err := New(Options{File: path, Always: []uint32{0}, Users: h, Record: r, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return g, h, r, path
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestAuthorize(t *testing.T) {
	g, h, _, _ := newGuard(t, ocean)
	for _, c := range []struct {
		uid     uint32
		host    error
		allowed bool
		err     error
	}{
		{7, nil, true, nil},
		{8, nil, false, nil}, // who has no name is somebody all the same
		{7, kb.ErrUnavailable, false, kb.ErrUnavailable},
		{0, kb.ErrUnavailable, false, kb.ErrUnavailable},
	} {
		h.err = c.host
		d, err := g.Authorize(t.Context(), Caller{UID: c.uid, Place: Place{Local: true}}, Use, "mitgcm", nil)
		if d.Allowed != c.allowed || !errors.Is(err, c.err) || err == nil && d.Reason == "" {
			t.Errorf("uid %d, host %v: %+v, %v", c.uid, c.host, d, err)
		}
	}
	// A policy that asks for nobody's name hangs on nobody's answer.
	open, _, _, _ := newGuard(t, "default:\n  use:\n    - everybody: true\n")
	open.o.Users = &host{err: kb.ErrUnavailable}
	if d, err := open.Authorize(t.Context(), Caller{UID: 7}, Use, "mitgcm", nil); err != nil || !d.Allowed {
		t.Errorf("%+v, %v", d, err)
	}
}

// A user whom Slurm knows by name and the host does not, as while its name
// service is away, is not refused: it is asked again.
func TestANameServiceThatIsAway(t *testing.T) {
	g, _, r, _ := newGuard(t, ocean)
	asker := Caller{UID: 8, Name: "bob", By: "slurmctld", From: "job 12"}
	_, err := g.Authorize(t.Context(), asker, Use, "mitgcm", &Job{})
	var later *kb.RetryableError
	if !errors.Is(err, kb.ErrUnavailable) || !errors.As(err, &later) || later.Wait <= 0 || !strings.Contains(err.Error(), "job 12 waits for the name service") {
		t.Errorf("%v", err)
	}
	if len(r.entries) != 1 { // the policy's
		t.Errorf("on record is %+v", r.entries)
	}
	asker.Name = ""
	if d, err := g.Authorize(t.Context(), asker, Use, "mitgcm", &Job{}); err != nil || d.Allowed {
		t.Errorf("who has no name anywhere: %+v, %v", d, err)
	}
	open, _, _, _ := newGuard(t, "default:\n  use:\n    - everybody: true\n")
	asker.Name = "bob"
	if d, err := open.Authorize(t.Context(), asker, Use, "mitgcm", &Job{}); err != nil || !d.Allowed {
		t.Errorf("a policy that names nobody: %+v, %v", d, err)
	}
}

func TestTheStart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.yaml")
	quiet := slog.New(slog.DiscardHandler)
	if _, err := New(Options{File: path, Log: quiet}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
	g, err := New(Options{File: path, Optional: true, Always: []uint32{5}, Log: quiet})
	if err != nil || g.State().Policy.File != "" {
		t.Fatalf("one that need not be there: %v", err)
	}
	// What counts is what the brokers share.
	var found []string
	var full error
	g.o.Share = func(s State, err error, again bool) (State, error) {
		if err == nil {
			found = append(found, fmt.Sprint(s.Policy.File, again))
		}
		return s, errors.Join(err, full)
	}
	write(t, path, ocean)
	full = kb.ErrUnavailable
	if err := g.Reload(); !errors.Is(err, kb.ErrUnavailable) || g.State().Policy.File != "" || len(found) != 1 || found[0] != path+"true" {
		t.Errorf("it is not shared: %v, %q", err, found)
	}
	if _, err := New(Options{File: path, Share: g.o.Share, Log: quiet}); !errors.Is(err, kb.ErrUnavailable) || found[1] != path+"false" {
		t.Errorf("nor at the start: %v", err)
	}
	full = nil
	// Once it is there it counts, and may not go again.
	write(t, path, ocean)
	if err := g.Reload(); err != nil || g.State().Policy.File != path {
		t.Errorf("it came: %v", err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := g.Reload(); err == nil || g.State().Policy.File != path {
		t.Errorf("it went: %v", err)
	}
	write(t, path, "profile: {}\n")
	if _, err := New(Options{File: path, Optional: true, Log: quiet}); !errors.Is(err, kb.ErrInvalid) {
		t.Errorf("a bad file at the start: %v", err)
	}
	if _, err := New(Options{Record: &tape{err: kb.ErrUnavailable}, Log: quiet}); !errors.Is(err, kb.ErrUnavailable) {
		t.Errorf("no record at the start: %v", err)
	}
}

// Rights come into force with their record, or not.
func TestNoRightsWithoutARecord(t *testing.T) {
	g, _, r, path := newGuard(t, ocean)
	write(t, path, "builders: {}\n")
	r.err = kb.ErrUnavailable
	if err := g.Reload(); !errors.Is(err, kb.ErrUnavailable) || !g.State().Policy.Restricted("mitgcm") {
		t.Errorf("Reload = %v", err)
	}
	if _, err := g.Health(); err == nil {
		t.Error("the guard is well")
	}
	r.err = nil
	changed := 0
	g.o.Changed = func() { changed++ }
	if err := g.Reload(); err != nil || g.State().Policy.Restricted("mitgcm") || changed != 1 {
		t.Errorf("Reload = %v", err)
	}
}

func TestNotes(t *testing.T) {
	g, _, r, _ := newGuard(t, ocean)
	r.entries, r.waited = nil, nil
	d := Decision{Caller: Caller{UID: 7, By: "munge", From: "n1"}, Who: "alice", Action: "publish", Object: "x", Via: "ApplyProfile", Answer: Answer{Allowed: true, Reason: "why"}, Stated: "because"}
	seq, err := g.Note(d, true)
	if err != nil || seq != 1 {
		t.Fatal(seq, err)
	}
	if err := g.NoteOutcome(d, seq, errors.New("broke")); err != nil {
		t.Fatal(err)
	}
	d.Allowed = false
	if err := g.NoteWhole(d, errors.New("unused")); err != nil {
		t.Fatal(err)
	}
	first, second, third := r.entries[0], r.entries[1], r.entries[2]
	if first.Kind != KindDecision || !*first.Allowed || *first.UID != 7 || first.Who != "alice" || first.Stated != "because" || first.Outcome != "" || !r.waited[0] {
		t.Errorf("%+v", first)
	}
	if second.Kind != KindOutcome || second.Of != 1 || second.Outcome != "broke" || second.Allowed != nil {
		t.Errorf("%+v", second)
	}
	if *third.Allowed || third.Outcome != "" || third.Reason != "why" || third.Stated != "because" || r.waited[2] {
		t.Errorf("%+v", third)
	}
}

func TestHealth(t *testing.T) {
	g, _, _, path := newGuard(t, ocean)
	if text, err := g.Health(); err != nil || !strings.Contains(text, path) {
		t.Errorf("%q, %v", text, err)
	}
	if text, err := WithoutFile(nil, slog.Default()).Health(); err != nil || !strings.Contains(text, "everybody") {
		t.Errorf("%q, %v", text, err)
	}
}

// Accounts count before there is a job; slurmctld's own word counts for a job.
func TestAccounts(t *testing.T) {
	g, _, _, _ := newGuard(t, "profiles:\n  mitgcm:\n    use:\n      - accounts: [climate]\n")
	asked, accounts, failure := 0, []string{"ocean"}, error(nil)
	g.o.Accounts = func(_ context.Context, person kb.User) ([]string, error) {
		if asked++; person.Name != "alice" {
			t.Errorf("asked about %+v", person)
		}
		return accounts, failure
	}
	check := func(what string, uid uint32, action Action, job *Job, allowed bool, words string, questions int) {
		t.Helper()
		d, err := g.Authorize(t.Context(), Caller{UID: uid, Place: Place{Local: true}}, action, "mitgcm", job)
		if err != nil || d.Allowed != allowed || !strings.Contains(d.Reason, words) || asked != questions {
			t.Errorf("%s: %+v, %v, asked %d times", what, d, err, asked)
		}
	}
	check("not theirs", 7, Use, nil, false, `"ocean"`, 1)
	accounts = []string{"climate"}
	check("theirs", 7, Use, nil, true, "for a job with account climate", 2)
	check("a job", 7, Use, &Job{Account: "climate"}, true, "", 2)
	check("somebody without a name", 8, Use, nil, true, "for a job with account climate", 2)
	check("another action", 7, Publish, nil, false, "", 2)
	accounts, failure = nil, kb.ErrUnavailable
	check("nobody says", 7, Use, nil, true, "for a job with account climate", 3)
	accounts, failure = []string{"ocean"}, nil
	alice, job := kb.User{UID: 7, Name: "alice"}, &Job{Account: "climate"}
	if a := g.Test(t.Context(), alice, Place{Local: true}, Use, "mitgcm", job); a.Allowed || !strings.Contains(a.Reason, `"ocean"`) {
		t.Errorf("an account that is claimed: %+v", a)
	}
}
