// SPDX-License-Identifier: Apache-2.0

package authz

import (
	"fmt"

	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/audit"
)

// Kinds of records.
const (
	KindDecision = "decision"
	KindOutcome  = "outcome"
	KindPolicy   = "policy"
	KindBroker   = "broker"
	// KindUnrecorded says how many reads and refusals were left out that no later
	// record of the same ones counts.
	KindUnrecorded = "unrecorded"
)

// Decision is an answer with everything that the record wants to know of it.
type Decision struct {
	Asker
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

// source is whose the decision is. A user who comes over the network is another
// one at each address: it may be somebody who poses as him.
func (d Decision) source() source {
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
	return source{who: who, host: d.Host, network: d.Network}
}

func (d Decision) entry(kind string) audit.Entry {
	e := audit.Entry{Kind: kind, Who: d.Who, By: d.By, From: d.From, Action: d.Action, Object: d.Object, Via: d.Via}
	if !d.Unknown {
		uid := d.UID
		e.UID = &uid
	}
	return e
}

// Note records a decision whose outcome is not known yet. With wait it is on
// disk when Note returns; the outcome then has a record of its own. It is never
// left out: what cannot be recorded is an error, and counted.
func (g *Guard) Note(d Decision, wait bool) (uint64, error) {
	if g.o.Record == nil {
		return 0, nil
	}
	e := d.entry(KindDecision)
	e.Reason, e.Stated = d.Reason, d.Stated
	if !d.Open {
		allowed := d.Allowed
		e.Allowed = &allowed
	}
	seq, err := g.append(e, wait)
	if err != nil {
		g.sieveOf(d).miss(d.source().who, 1)
	}
	return seq, err
}

// NoteWhole records a decision that changed nothing, together with what came of
// it. Of whom there are too many it leaves some out and counts them; and all
// while the record has room for changes alone.
func (g *Guard) NoteWhole(d Decision, failure error) error {
	if g.o.Record == nil {
		return nil
	}
	e := d.entry(KindDecision)
	allowed := d.Allowed
	e.Allowed, e.Reason, e.Stated = &allowed, d.Reason, d.Stated
	if d.Allowed {
		e.Outcome = outcome(failure)
	}
	s := g.sieveOf(d)
	passed, before := s.take(d.source(), g.o.Record.Room())
	if !passed {
		return nil
	}
	e.Unrecorded = before
	_, err := g.append(e, false)
	if err != nil {
		s.miss(d.source().who, before+1)
	}
	return err
}

// LeaveOut counts a decision of which there are known to be too many.
func (g *Guard) LeaveOut(d Decision) {
	if g.o.Record != nil {
		g.sieveOf(d).miss(d.source().who, 1)
	}
}

func (g *Guard) sieveOf(d Decision) *sieve {
	if d.Allowed {
		return g.reads
	}
	return g.refusals
}

// NoteOutcome records what came of a decision that is on record. What was denied
// as it was done is a refusal.
func (g *Guard) NoteOutcome(d Decision, of uint64, failure error) error {
	e := d.entry(KindOutcome)
	e.Of, e.Outcome = of, outcome(failure)
	if denied := failure != nil && !d.Allowed; denied || d.Open && failure == nil {
		allowed := !denied
		e.Allowed = &allowed
	}
	_, err := g.append(e, false)
	return err
}

// NoteBroker records something that the broker itself did.
func (g *Guard) NoteBroker(action, reason string) error {
	g.sum()
	_, err := g.append(audit.Entry{Kind: KindBroker, Action: action, Reason: reason}, true)
	return err
}

func (g *Guard) append(e audit.Entry, wait bool) (uint64, error) {
	if g.o.Record == nil {
		return 0, nil
	}
	seq, err := g.o.Record.Append(e, wait)
	if err == nil {
		g.mu.Lock()
		now := g.o.Now()
		due := now.Sub(g.summed) >= sumPause
		if due {
			g.summed = now
		}
		g.mu.Unlock()
		if due {
			g.sum()
		}
	}
	return seq, err
}

// sum records what was left out of those who did not come again since: their
// next record, which would say it, may never be.
func (g *Guard) sum() {
	if g.o.Record == nil {
		return
	}
	for what, s := range map[string]*sieve{"read": g.reads, "refused": g.refusals} {
		lost, others := s.all()
		total, words := sumOf(lost, others)
		if total == 0 {
			continue
		}
		if _, err := g.o.Record.Append(audit.Entry{Kind: KindUnrecorded, Action: what, Reason: words, Unrecorded: total}, false); err != nil {
			g.o.Log.Error("what was left out is not on record", "what", what, "unrecorded", total, "of", words, "error", err)
		}
	}
}

func outcome(err error) string {
	if err == nil {
		return "ok"
	}
	return err.Error()
}
