// SPDX-License-Identifier: Apache-2.0

package authz

import (
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

// People finds users. Errors are kernelbroker.ErrNotFound for one that has no
// name, and kernelbroker.ErrUnavailable when nobody can say.
type People interface {
	ByUID(ctx context.Context, uid uint32) (kb.User, error)
	ByName(ctx context.Context, name string) (kb.User, error)
}

// Recorder keeps the record. Room reports whether there is any for what changes
// nothing.
type Recorder interface {
	Append(e audit.Entry, wait bool) (uint64, error)
	Room() bool
}

// Options of a guard.
type Options struct {
	// File of the policy. With Optional it may be missing at the start; empty
	// stands for none.
	File     string
	Optional bool
	// Always are uids that are administrators on the broker's host.
	Always []uint32
	// People may be nil: users then have no names and no groups.
	People People
	// Accounts tells those that Slurm has for a user; nil where it lets everybody
	// name any. It is asked before there is a job, and may itself be nil.
	Accounts func(ctx context.Context, person kb.User) ([]string, error)
	// Record may be nil: nothing is recorded then.
	Record Recorder
	// Log defaults to slog.Default.
	Log *slog.Logger
	// Changed is called after another policy came into force; it may be nil.
	Changed func()
	// Now defaults to time.Now.
	Now func() time.Time
}

// Guard is safe for concurrent use.
type Guard struct {
	o Options

	// What of reads and refusals is recorded.
	reads, refusals *sieve

	mu     sync.Mutex
	state  State
	summed time.Time
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

// New returns a guard with its policy in force.
func New(o Options) (*Guard, error) {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	g := &Guard{o: o, reads: newSieve(readRate, o.Now), refusals: newSieve(refusalRate, o.Now), summed: o.Now()}
	loaded, err := g.load(o.Optional)
	if err != nil {
		return nil, err
	}
	g.state = State{Policy: loaded.Policy, Text: loaded.Text, Digest: loaded.Digest, Since: time.Now()}
	g.o.Log.Info("policy in force", "file", loaded.Policy.File, "digest", loaded.Digest)
	return g, g.notePolicy(loaded, nil)
}

// WithoutFile returns a guard with the policy that holds without a file, which
// looks nobody up and records nothing.
func WithoutFile(always []uint32, log *slog.Logger) *Guard {
	return &Guard{o: Options{Always: always, Log: log}, state: State{Policy: DefaultPolicy(always), Since: time.Now()}}
}

func (g *Guard) load(optional bool) (Loaded, error) {
	without := Loaded{Policy: DefaultPolicy(g.o.Always)}
	if g.o.File == "" {
		return without, nil
	}
	loaded, err := Load(g.o.File, g.o.Always)
	if optional && errors.Is(err, fs.ErrNotExist) {
		return without, nil
	}
	return loaded, err
}

// Reload reads the policy's file. When that fails the policy in force stays:
// a file that is gone takes no rules away.
func (g *Guard) Reload() error {
	g.mu.Lock()
	had := g.state
	g.mu.Unlock()
	loaded, err := g.load(had.Policy.File == "" && g.o.Optional)
	if err == nil {
		// Rights are not in force unless it is on record where they come from.
		err = g.notePolicy(loaded, nil)
	} else {
		g.o.Log.Error("policy NOT reloaded, the one before stays in force", "file", g.o.File, "in_force", had.Digest, "error", err)
		err = errors.Join(err, g.notePolicy(loaded, err))
	}
	g.mu.Lock()
	if g.state.Err = err; err == nil {
		g.state = State{Policy: loaded.Policy, Text: loaded.Text, Digest: loaded.Digest, Since: time.Now()}
	}
	g.mu.Unlock()
	if err != nil {
		return err
	}
	g.o.Log.Info("policy in force", "file", loaded.Policy.File, "digest", loaded.Digest, "before", had.Digest)
	if g.o.Changed != nil {
		g.o.Changed()
	}
	return nil
}

func (g *Guard) notePolicy(loaded Loaded, failure error) error {
	e := audit.Entry{Kind: KindPolicy, Action: "load", Object: g.o.File, Reason: loaded.Digest, Outcome: outcome(failure)}
	_, err := g.append(e, true)
	return err
}

// State returns the policy in force.
func (g *Guard) State() State {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.state
}

// Health says which policy is in force, or why the file is not.
func (g *Guard) Health() (string, error) {
	s := g.State()
	switch {
	case s.Err != nil:
		return "", fmt.Errorf("the policy of %s stays in force: %w", s.Since.UTC().Format(time.RFC3339), s.Err)
	case s.Policy.File == "":
		return "no file: everybody may use what is published", nil
	}
	return fmt.Sprintf("%s, in force since %s", s.Policy.File, s.Since.UTC().Format(time.RFC3339)), nil
}

// Asker is who asks, as far as that is proven.
type Asker struct {
	UID   uint32
	Place Place
	// By says how the uid is known, From where it came from, in words.
	By, From string
	// Name is what whoever vouches for the uid calls it, where that is known.
	Name string
	// Holder names whom records are counted for: a user, a node or an address;
	// empty: the uid, or From.
	Holder string
	// Host and Network are where one came from over the network, as records are
	// counted: a node by its certificate or an address, and what others like it
	// are in. Empty for who is on the broker's host.
	Host, Network string
}

// Judge answers whether the asker may do something. An error is
// kernelbroker.ErrUnavailable: what the policy asks for cannot be found out.
func (g *Guard) Judge(ctx context.Context, a Asker, action Action, object string, job *Job) (Decision, error) {
	p := g.State().Policy
	d := Decision{Asker: a, Action: string(action), Object: object}
	s := Subject{UID: a.UID, From: a.Place, Job: job}
	if g.o.People != nil {
		person, err := g.o.People.ByUID(ctx, a.UID)
		s.User, s.Groups = person.Name, person.Groups
		if errors.Is(err, kb.ErrNotFound) && a.Name != "" {
			err = nameless(a)
		}
		if err != nil && !errors.Is(err, kb.ErrNotFound) && p.NeedsPeople() {
			return d, err
		}
		if job == nil {
			s.Accounts = g.accounts(ctx, p, person, action)
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
func nameless(a Asker) error {
	return &kb.RetryableError{Wait: namesWait, Err: fmt.Errorf("%s waits for the name service of the broker's host: it knows no uid %d, which is %q to %s (getent passwd %d); it is asked again in %v: %w",
		a.From, a.UID, a.Name, a.By, a.UID, namesWait, kb.ErrUnavailable)}
}

// accounts are those that Slurm has for a user, as far as they can matter. Where
// Slurm does not say, the answer stays what it is without them: that it hangs on
// the job's account.
func (g *Guard) accounts(ctx context.Context, p *Policy, person kb.User, action Action) []string {
	if g.o.Accounts == nil || person.Name == "" || action != Use || !p.NeedsAccounts() {
		return nil
	}
	accounts, err := g.o.Accounts(ctx, person)
	if err != nil {
		g.o.Log.Warn("accounts not known, answered without them", "user", person.Name, "error", err)
	}
	return accounts
}

// nameLimit is how long a record's name is waited for.
const nameLimit = 200 * time.Millisecond

// NameOf is the name of a user, for records; empty when there is none or nobody
// can say soon. No decision hangs on it.
func (g *Guard) NameOf(ctx context.Context, uid uint32) string {
	if g.o.People == nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, nameLimit)
	defer cancel()
	person, err := g.o.People.ByUID(ctx, uid)
	if err != nil {
		return ""
	}
	return person.Name
}

// Person finds a user by name or uid.
func (g *Guard) Person(ctx context.Context, name string) (kb.User, error) {
	if g.o.People == nil {
		return kb.User{}, fmt.Errorf("user %q: this broker looks nobody up: %w", name, kb.ErrFailedPrecondition)
	}
	return g.o.People.ByName(ctx, name)
}

// Test answers for somebody, without a record: nothing comes of it.
func (g *Guard) Test(ctx context.Context, person kb.User, place Place, action Action, object string, job *Job) Answer {
	p := g.State().Policy
	s := Subject{UID: person.UID, User: person.Name, Groups: person.Groups, From: place, Job: job}
	s.Accounts = g.accounts(ctx, p, person, action)
	return p.Decide(Question{Subject: s, Action: action, Object: object})
}
