// SPDX-License-Identifier: Apache-2.0

package authz

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/audit"
)

// Users finds users. Errors are kernelbroker.ErrNotFound for one that has no
// name, and kernelbroker.ErrUnavailable when nobody can say.
type Users interface {
	ByUID(ctx context.Context, uid uint32) (kb.User, error)
	ByName(ctx context.Context, name string) (kb.User, error)
}

// Recorder keeps the record. HasSpace reports whether there is any for what changes
// nothing.
type Recorder interface {
	Append(e audit.Entry, wait bool) (uint64, error)
	HasSpace() bool
}

// unrecorded stands for no record.
type unrecorded struct{}

func (unrecorded) Append(audit.Entry, bool) (uint64, error) { return 0, nil }
func (unrecorded) HasSpace() bool                           { return true }

// Options of an authorizer.
type Options struct {
	// File of the policy. With Optional it may be missing at the start; empty
	// stands for none.
	File     string
	Optional bool
	// Always are uids that are administrators on the broker's host.
	Always []uint32
	// Users may be nil: users then have no names and no groups.
	Users Users
	// Accounts tells those that Slurm has for a user; nil where it lets everybody
	// name any. It is asked before there is a job, and may itself be nil.
	Accounts func(ctx context.Context, user kb.User) ([]string, error)
	// Record may be nil: nothing is recorded then.
	Record Recorder
	// Log defaults to slog.Default.
	Log *slog.Logger
	// Changed is called after another policy came into force; it may be nil.
	Changed func()
	// Now defaults to time.Now.
	Now func() time.Time
}

// An Authorizer holds the policy in force. It is safe for concurrent use.
type Authorizer struct {
	o Options

	// What of reads and refusals is recorded.
	reads, refusals *sampler

	mu    sync.Mutex
	state State
}

// State is the policy in force.
type State struct {
	Policy *Policy
	// Text and Digest of its file; empty without one.
	Text, Digest string
	Since        time.Time
	// Err is why the file, as it is now, is not in force.
	Err error
}

// New returns an authorizer with its policy in force.
func New(o Options) (*Authorizer, error) {
	o.Log = cmp.Or(o.Log, slog.Default())
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Record == nil {
		o.Record = unrecorded{}
	}
	a := &Authorizer{o: o, reads: newSampler(readRate, o.Now), refusals: newSampler(refusalRate, o.Now)}
	var err error
	if a.state, err = a.load(o.Optional); err != nil {
		return nil, err
	}
	a.o.Log.Info("policy in force", "file", a.state.Policy.File, "digest", a.state.Digest)
	return a, a.notePolicy(a.state, nil)
}

// WithoutFile returns an authorizer with the policy that holds without a file, which
// looks nobody up and records nothing.
func WithoutFile(always []uint32, log *slog.Logger) *Authorizer {
	return &Authorizer{o: Options{Always: always, Log: log, Record: unrecorded{}}, reads: newSampler(readRate, time.Now), refusals: newSampler(refusalRate, time.Now), state: State{Policy: DefaultPolicy(always), Since: time.Now()}}
}

func (a *Authorizer) load(optional bool) (State, error) {
	if a.o.File != "" {
		loaded, err := Load(a.o.File, a.o.Always)
		if !optional || !errors.Is(err, fs.ErrNotExist) {
			return loaded, err
		}
	}
	return State{Policy: DefaultPolicy(a.o.Always), Since: time.Now()}, nil
}

// Reload reads the policy's file. When that fails the policy in force stays:
// a file that is gone takes no rules away.
func (a *Authorizer) Reload() error {
	a.mu.Lock()
	had := a.state
	a.mu.Unlock()
	loaded, err := a.load(had.Policy.File == "" && a.o.Optional)
	if err == nil {
		// Rights are not in force unless it is on record where they come from.
		err = a.notePolicy(loaded, nil)
	} else {
		a.o.Log.Error("policy NOT reloaded, the one before stays in force", "file", a.o.File, "in_force", had.Digest, "error", err)
		err = errors.Join(err, a.notePolicy(loaded, err))
	}
	a.mu.Lock()
	if a.state.Err = err; err == nil {
		a.state = loaded
	}
	a.mu.Unlock()
	if err != nil {
		return err
	}
	a.o.Log.Info("policy in force", "file", loaded.Policy.File, "digest", loaded.Digest, "before", had.Digest)
	if a.o.Changed != nil {
		a.o.Changed()
	}
	return nil
}

func (a *Authorizer) notePolicy(loaded State, failure error) error {
	e := audit.Entry{Kind: KindPolicy, Action: "load", Object: a.o.File, Reason: loaded.Digest, Outcome: outcome(failure)}
	_, err := a.o.Record.Append(e, true)
	return err
}

// State returns the policy in force.
func (a *Authorizer) State() State {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.state
}

// Health says which policy is in force, or why the file is not.
func (a *Authorizer) Health() (string, error) {
	s := a.State()
	switch {
	case s.Err != nil:
		return "", fmt.Errorf("the policy of %s stays in force: %w", s.Since.UTC().Format(time.RFC3339), s.Err)
	case s.Policy.File == "":
		return "no file: everybody may use what is published", nil
	}
	return fmt.Sprintf("%s, in force since %s", s.Policy.File, s.Since.UTC().Format(time.RFC3339)), nil
}

// Caller is who asks, as far as that is authenticated.
type Caller struct {
	UID   uint32
	Place Place
	// By says how the uid is known, From where the call came from, as text.
	By, From string
	// Name is what the source of the uid calls the user, where that is known.
	Name string
	// Holder names the caller for its limits: a user, a node or an address; empty:
	// the uid, or From.
	Holder string
	// Host is where a call over the network came from, as records are counted: a
	// node by its certificate, or an address. Empty on the broker's host.
	Host string
}

// Authorize decides whether the caller may do something. The error is
// ErrUnavailable when what the policy asks for cannot be found out.
func (a *Authorizer) Authorize(ctx context.Context, c Caller, action Action, object string, job *Job) (Decision, error) {
	p := a.State().Policy
	d := Decision{Caller: c, Action: string(action), Object: object}
	s := Subject{UID: c.UID, From: c.Place, Job: job}
	if a.o.Users != nil {
		user, err := a.o.Users.ByUID(ctx, c.UID)
		s.User, s.Groups = user.Name, user.Groups
		if errors.Is(err, kb.ErrNotFound) && c.Name != "" {
			err = nameless(c)
		}
		if err != nil && !errors.Is(err, kb.ErrNotFound) && p.NeedsUsers() {
			return d, err
		}
		if job == nil {
			s.Accounts = a.accounts(ctx, p, user, action)
		}
	}
	answer := p.Decide(Question{Subject: s, Action: action, Object: object})
	d.Who, d.Allowed, d.Reason, d.Proviso, d.Line = s.User, answer.Allowed, answer.Reason, answer.Proviso, answer.Line
	return d, nil
}

// namesWait is when a name that was not found is asked for again.
const namesWait = 5 * time.Second

// nameless is for a user who has a name elsewhere: the host's name service, which
// says the same when it is away, is no reason to refuse anything for good.
func nameless(c Caller) error {
	return &kb.RetryableError{Wait: namesWait, Err: fmt.Errorf("%s waits for the name service of the broker's host: it knows no uid %d, which is %q to %s (getent passwd %d); it is asked again in %v: %w",
		c.From, c.UID, c.Name, c.By, c.UID, namesWait, kb.ErrUnavailable)}
}

// accounts are those that Slurm has for a user, as far as they can matter. Where
// Slurm does not say, the answer stays what it is without them: that it hangs on
// the job's account.
func (a *Authorizer) accounts(ctx context.Context, p *Policy, user kb.User, action Action) []string {
	if a.o.Accounts == nil || user.Name == "" || action != Use || !p.NeedsAccounts() {
		return nil
	}
	accounts, err := a.o.Accounts(ctx, user)
	if err != nil {
		a.o.Log.Warn("accounts not known, answered without them", "user", user.Name, "error", err)
	}
	return accounts
}

// nameLimit is how long a record's name is waited for.
const nameLimit = 200 * time.Millisecond

// NameOf is the name of a user, for records; empty when there is none or nobody
// can say soon. No decision hangs on it.
func (a *Authorizer) NameOf(ctx context.Context, uid uint32) string {
	if a.o.Users == nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, nameLimit)
	defer cancel()
	user, err := a.o.Users.ByUID(ctx, uid)
	if err != nil {
		return ""
	}
	return user.Name
}

// UserByName finds a user by name or uid.
func (a *Authorizer) UserByName(ctx context.Context, name string) (kb.User, error) {
	if a.o.Users == nil {
		return kb.User{}, fmt.Errorf("user %q: this broker looks up no users: %w", name, kb.ErrFailedPrecondition)
	}
	return a.o.Users.ByName(ctx, name)
}

// Test answers for somebody, without a record: nothing comes of it.
func (a *Authorizer) Test(ctx context.Context, user kb.User, place Place, action Action, object string, job *Job) Answer {
	p := a.State().Policy
	s := Subject{UID: user.UID, User: user.Name, Groups: user.Groups, From: place, Job: job}
	s.Accounts = a.accounts(ctx, p, user, action)
	return p.Decide(Question{Subject: s, Action: action, Object: object})
}
