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
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/audit"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/limit"
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
	// JobAccount tells the account of a job; AuthorizeJob needs it where the policy names accounts.
	JobAccount func(ctx context.Context, job uint32) (string, error)
	// Record may be nil: nothing is recorded then.
	Record Recorder
	// Log defaults to slog.Default.
	Log *slog.Logger
	// Share is told what the file has, or why it has nothing, and whether it is read again; it returns what is to be in
	// force, for all brokers of the cluster. It may be nil.
	Share func(found State, wrong error, again bool) (State, error)
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
	waits           rate.Sometimes // logs that jobs wait

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
	a := &Authorizer{o: o, reads: newSampler(readRate, o.Now), refusals: newSampler(refusalRate, o.Now), waits: rate.Sometimes{Interval: waitsEvery}}
	var err error
	if a.state, err = a.load(o.Optional, false); err != nil {
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

func (a *Authorizer) load(optional, again bool) (State, error) {
	loaded, err := State{Policy: DefaultPolicy(a.o.Always), Since: time.Now()}, error(nil)
	if a.o.File != "" {
		loaded, err = Load(a.o.File, a.o.Always)
	}
	if a.o.Share != nil {
		loaded, err = a.o.Share(loaded, err, again)
	}
	if optional && errors.Is(err, fs.ErrNotExist) {
		return State{Policy: DefaultPolicy(a.o.Always), Since: time.Now()}, nil
	}
	return loaded, err
}

// Reload reads the policy's file. When that fails the policy in force stays:
// a file that is gone takes no rules away.
func (a *Authorizer) Reload() error {
	a.mu.Lock()
	had := a.state
	a.mu.Unlock()
	loaded, err := a.load(had.Policy.File == "" && a.o.Optional, true)
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
	d.Who, d.Answer = s.User, p.Decide(Question{Subject: s, Action: action, Object: object})
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
	if a.o.Accounts == nil || user.Name == "" || !action.ofJobs() || !p.NeedsAccounts() {
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

// Kinds of records.
const (
	KindDecision = "decision"
	KindOutcome  = "outcome"
	KindPolicy   = "policy"
	KindBroker   = "broker"
	// KindUnrecorded says how many reads or refusals were left out before the
	// broker stopped.
	KindUnrecorded = "unrecorded"
)

// Decision is an answer with everything that the record wants to know of it.
type Decision struct {
	Caller
	Who            string
	Action, Object string
	// Via is the method, or the job that it is about.
	Via string
	Answer
	// Stated is the reason that the caller gives.
	Stated string
	// Unknown: nobody is proven, and UID and Who are not known or only seem so.
	Unknown bool
	// Open: whether it is allowed is found out as it is done, and the record of
	// the outcome says it.
	Open bool
}

// source is what records of the decision are counted for. A user is another source
// at each address: it may be somebody else with MUNGE's key.
func (d Decision) source() string {
	who := d.Holder
	switch {
	case who != "":
	case !d.Unknown:
		who = fmt.Sprintf("uid %d", d.UID)
	default:
		who = d.From
	}
	if d.Host != "" && d.Host != who {
		who += " at " + d.Host
	}
	return who
}

func (d Decision) entry(kind string) audit.Entry {
	e := audit.Entry{Kind: kind, Who: d.Who, By: d.By, From: d.From, Action: d.Action, Object: d.Object, Via: d.Via}
	if !d.Unknown {
		e.UID = new(d.UID)
	}
	return e
}

// Note records a decision whose outcome is not known yet. With wait it is on disk
// when Note returns; the outcome then has a record of its own. It is never sampled:
// a record that cannot be written is an error.
func (a *Authorizer) Note(d Decision, wait bool) (uint64, error) {
	e := d.entry(KindDecision)
	e.Reason, e.Stated = d.Reason, d.Stated
	if !d.Open {
		e.Allowed = new(d.Allowed)
	}
	seq, err := a.o.Record.Append(e, wait)
	if err != nil {
		a.samplerOf(d).skip(1)
	}
	return seq, err
}

// NoteWhole records a decision that changed nothing, together with its outcome.
// Records are sampled, and left out while the disk has room for changes only.
func (a *Authorizer) NoteWhole(d Decision, failure error) error {
	e := d.entry(KindDecision)
	e.Allowed, e.Reason, e.Stated = new(d.Allowed), d.Reason, d.Stated
	if d.Allowed {
		e.Outcome = outcome(failure)
	}
	s, record := a.samplerOf(d), false
	if !a.o.Record.HasSpace() {
		s.skip(1)
		return nil
	}
	if record, e.Unrecorded = s.sample(d.source(), d.Host); !record {
		return nil
	}
	_, err := a.o.Record.Append(e, false)
	if err != nil {
		s.skip(e.Unrecorded + 1)
	}
	return err
}

func (a *Authorizer) samplerOf(d Decision) *sampler {
	if d.Allowed {
		return a.reads
	}
	return a.refusals
}

// NoteOutcome records what came of a decision that is on record. What was denied
// as it was done is a refusal.
func (a *Authorizer) NoteOutcome(d Decision, of uint64, failure error) error {
	e := d.entry(KindOutcome)
	e.Of, e.Outcome = of, outcome(failure)
	if denied := failure != nil && !d.Allowed; denied || d.Open && failure == nil {
		e.Allowed = new(!denied)
	}
	_, err := a.o.Record.Append(e, false)
	return err
}

// NoteBroker records an act of the broker itself, after the numbers of what was
// left out before.
func (a *Authorizer) NoteBroker(action, reason string) error {
	for what, s := range map[string]*sampler{"read": a.reads, "refused": a.refusals} {
		if n := s.skipped.Swap(0); n > 0 {
			if _, err := a.o.Record.Append(audit.Entry{Kind: KindUnrecorded, Action: what, Unrecorded: n}, false); err != nil {
				a.o.Log.Error("number of omitted records not recorded", "what", what, "unrecorded", n, "error", err)
			}
		}
	}
	_, err := a.o.Record.Append(audit.Entry{Kind: KindBroker, Action: action, Reason: reason}, true)
	return err
}

func outcome(err error) string {
	if err == nil {
		return "ok"
	}
	return err.Error()
}

// How many records one source causes by calls that change nothing: reads, and
// apart from them refusals, so that many reads hide no refusal. The rest is
// counted.
var (
	readRate    = limit.Rate{PerSecond: 1, Burst: 200}
	refusalRate = limit.Rate{PerSecond: 1, Burst: 100}
	// hostRate is for all users of one address. A user can have as many uids there
	// as MUNGE's key makes.
	hostRate = limit.Rate{PerSecond: 4, Burst: 2000}
	// networkRate is for all addresses together: at most 530,000 records a day, of
	// some 450 bytes.
	networkRate = limit.Rate{PerSecond: 6, Burst: 5000}
)

// sampler limits audit records per source. Safe for concurrent use; its memory is
// bounded.
type sampler struct {
	sources, hosts *limit.Rates
	network        *rate.Limiter
	now            func() time.Time
	skipped        atomic.Uint64
}

func newSampler(r limit.Rate, now func() time.Time) *sampler {
	return &sampler{sources: limit.NewRates(r, limit.DefaultKeep, now), hosts: limit.NewRates(hostRate, limit.DefaultKeep, now),
		network: rate.NewLimiter(rate.Limit(networkRate.PerSecond), networkRate.Burst), now: now}
}

// sample reports whether to record an event, and how many were skipped since the
// last one that was recorded. host is empty for callers on the broker's host.
func (s *sampler) sample(source, host string) (record bool, skipped uint64) {
	now := s.now()
	// The order keeps the tables from filling up: a key is added to one when the
	// wider limits have room.
	if host != "" && (s.network.TokensAt(now) < 1 || s.hosts.Take(host) > 0) || s.sources.Take(source) > 0 || host != "" && !s.network.AllowN(now, 1) {
		s.skip(1)
		return false, 0
	}
	return true, s.skipped.Swap(0)
}

// skip counts events that are not recorded.
func (s *sampler) skip(n uint64) { s.skipped.Add(n) }
