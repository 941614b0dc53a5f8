package guard

import (
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/audit"
)

// Kinds of records.
const (
	KindDecision = "decision"
	KindOutcome  = "outcome"
	KindPolicy   = "policy"
	KindBroker   = "broker"
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
// disk when Note returns; the outcome then has a record of its own.
func (g *Guard) Note(d Decision, wait bool) (uint64, error) {
	e := d.entry(KindDecision)
	allowed := d.Allowed
	e.Allowed, e.Reason, e.Stated = &allowed, d.Reason, d.Stated
	return g.append(e, wait)
}

// NoteWhole records a decision together with what came of it. Refusals of
// people whom nobody knows are recorded as far as there are not too many.
func (g *Guard) NoteWhole(d Decision, failure error) error {
	e := d.entry(KindDecision)
	allowed := d.Allowed
	e.Allowed, e.Reason, e.Stated = &allowed, d.Reason, d.Stated
	if d.Allowed {
		e.Outcome = outcome(failure)
	}
	if d.Unknown && !d.Allowed {
		g.mu.Lock()
		passed, before := g.flood.take(time.Now())
		g.mu.Unlock()
		if !passed {
			return nil
		}
		e.Unrecorded = before
	}
	_, err := g.append(e, false)
	return err
}

// NoteOutcome records what came of a decision that is on record.
func (g *Guard) NoteOutcome(d Decision, of uint64, failure error) error {
	e := d.entry(KindOutcome)
	e.Of, e.Outcome = of, outcome(failure)
	_, err := g.append(e, false)
	return err
}

// NoteBroker records something that the broker itself did.
func (g *Guard) NoteBroker(action, reason string) error {
	_, err := g.append(audit.Entry{Kind: KindBroker, Action: action, Reason: reason}, true)
	return err
}

func (g *Guard) append(e audit.Entry, wait bool) (uint64, error) {
	if g.o.Record == nil {
		return 0, nil
	}
	return g.o.Record.Append(e, wait)
}

func outcome(err error) string {
	if err == nil {
		return "ok"
	}
	return err.Error()
}

// How many refusals of strangers are recorded: so many at once, and so many
// more each second. Anybody who reaches the port can cause them.
const (
	floodBurst  = 100
	floodSecond = 5
)

// flood is a bucket of what may be recorded; its zero value is full. Its user
// sees to it that one call at a time uses it.
type flood struct {
	used float64
	at   time.Time
	lost uint64
}

func (f *flood) take(now time.Time) (passed bool, before uint64) {
	f.used = max(0, f.used-now.Sub(f.at).Seconds()*floodSecond)
	f.at = now
	if f.used+1 > floodBurst {
		f.lost++
		return false, 0
	}
	f.used++
	before, f.lost = f.lost, 0
	return true, before
}
