// SPDX-License-Identifier: Apache-2.0

package authz

import (
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/audit"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/limit"
)

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
	Via     string
	Allowed bool
	Reason  string
	// Stated is the reason that the caller gives.
	Stated  string
	Proviso string
	Line    int
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
		uid := d.UID
		e.UID = &uid
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
		allowed := d.Allowed
		e.Allowed = &allowed
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
	allowed := d.Allowed
	e.Allowed, e.Reason, e.Stated = &allowed, d.Reason, d.Stated
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
		allowed := !denied
		e.Allowed = &allowed
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
				a.o.Log.Error("what was left out is not on record", "what", what, "unrecorded", n, "error", err)
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
