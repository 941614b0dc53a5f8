// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"context"
	"crypto/subtle"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/digest"
)

const recordPrefix = "trust/nodes/"

// Record is what is known of one node. All changes of a node go through its
// record, so they happen one after another.
type Record struct {
	Node    string      `json:"node"`
	Token   *Pending    `json:"token,omitempty"`
	Issued  []Issued    `json:"issued,omitempty"`
	Revoked *Revocation `json:"revoked,omitempty"`
}

// Pending is a token that was made. The secret itself is nowhere.
type Pending struct {
	Hash    string    `json:"hash"`
	Expires time.Time `json:"expires"`
	By      string    `json:"by"`
	// Key is the fingerprint of the key that it was used for; empty: unused.
	// An agent that did not hear the answer may ask again with the same key.
	Key string `json:"key,omitempty"`
}

// Issued is a certificate that was signed.
type Issued struct {
	Serial    string    `json:"serial"`
	NotBefore time.Time `json:"not_before"`
	NotAfter  time.Time `json:"not_after"`
	From      string    `json:"from"`
}

// Revocation voids what is older.
type Revocation struct {
	At     time.Time `json:"at"`
	By     string    `json:"by"`
	Reason string    `json:"reason,omitempty"`
}

// Voids says whether a certificate that begins at notBefore is from before the
// revocation. Certificates count in whole seconds.
func (r *Revocation) Voids(notBefore time.Time) bool {
	return r != nil && !notBefore.After(r.At.Truncate(time.Second))
}

// begin is when a certificate that is signed now begins: after a revocation, be
// it the second after.
func (r *Record) begin(now time.Time) time.Time {
	now = now.Truncate(time.Second)
	if r.Revoked.Voids(now) {
		now = r.Revoked.At.Truncate(time.Second).Add(time.Second)
	}
	return now
}

// keepIssued is how many certificates of a node are on record. The others
// are void with a revocation as these are: it counts by when they begin.
const keepIssued = 8

// note puts a certificate on record, and forgets what has ended or is too much.
func (r *Record) note(leaf *x509.Certificate, from string, now time.Time) {
	r.Issued = slices.DeleteFunc(r.Issued, func(i Issued) bool { return !i.NotAfter.After(now) })
	r.Issued = append(r.Issued, Issued{
		Serial: fmt.Sprintf("%x", leaf.SerialNumber), NotBefore: leaf.NotBefore, NotAfter: leaf.NotAfter, From: from,
	})
	for len(r.Issued) > keepIssued {
		drop := r.superfluous()
		r.Issued = slices.Delete(r.Issued, drop, drop+1)
	}
}

// superfluous is the oldest certificate on record that is not needed there: a
// revocation has to know which one begins last, and a rotation which one ends last.
func (r *Record) superfluous() int {
	begins, ends := 0, 0
	for i, c := range r.Issued {
		if c.NotBefore.After(r.Issued[begins].NotBefore) {
			begins = i
		}
		if c.NotAfter.After(r.Issued[ends].NotAfter) {
			ends = i
		}
	}
	drop := 0
	for drop == begins || drop == ends {
		drop++
	}
	return drop
}

// revoke voids every certificate on record, also one that begins later than
// this clock says: it was set back, or another broker's is ahead. It is newer
// than the revocation before it, so that it is not taken for an older one.
func (r *Record) revoke(now time.Time, by, reason string) *Revocation {
	at := now.UTC()
	for _, i := range r.Issued {
		at = later(at, i.NotBefore)
	}
	if r.Revoked != nil {
		at = later(at, r.Revoked.At.Add(time.Second))
	}
	r.Token, r.Revoked = nil, &Revocation{At: at, By: by, Reason: reason}
	return r.Revoked
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func equal(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// use checks a secret and notes the key that the token is used for.
func (r *Record) use(secret, key string, now time.Time) error {
	t := r.Token
	if t == nil || !equal(t.Hash, digest.Of([]byte(secret))) {
		return fmt.Errorf("node %q: the token is unknown, replaced or revoked; kernelctl node token %s makes another: %w", r.Node, r.Node, kb.ErrDenied)
	}
	if !now.Before(t.Expires) {
		return fmt.Errorf("node %q: token expired at %s; kernelctl node token %s makes another: %w",
			r.Node, t.Expires.UTC().Format(time.RFC3339), r.Node, kb.ErrDenied)
	}
	if t.Key != "" && t.Key != key {
		return fmt.Errorf("node %q: %w", r.Node, errUsed)
	}
	t.Key = key
	return nil
}

var errUsed = fmt.Errorf("token was used for another key; if that was not this node, revoke it: %w", kb.ErrDenied)

// get reads a record; a node without one has an empty record at revision 0.
func (r *Registry) get(ctx context.Context, node string) (Record, int64, error) {
	rec, err := r.o.Store.Get(ctx, recordPrefix+node)
	if errors.Is(err, store.ErrNotFound) {
		return Record{Node: node}, 0, nil
	}
	if err != nil {
		return Record{}, 0, unavailable(node, err)
	}
	record, err := decode(rec)
	return record, rec.Revision, err
}

func decode(rec store.Record) (Record, error) {
	var record Record
	if err := json.Unmarshal(rec.Value, &record); err != nil {
		return record, fmt.Errorf("record %q: %w", rec.Key, err)
	}
	if want := strings.TrimPrefix(rec.Key, recordPrefix); record.Node != want {
		return record, fmt.Errorf("record %q is of node %q: %w", rec.Key, record.Node, kb.ErrInvalid)
	}
	return record, nil
}

// change lets a function change a node's record, and again on what somebody
// else made of it meanwhile. Nothing that the function did counts before this
// returns nil.
func (r *Registry) change(ctx context.Context, node string, do func(*Record) error) error {
	for {
		record, revision, err := r.get(ctx, node)
		if err != nil {
			return err
		}
		if err := do(&record); err != nil {
			return err
		}
		value, err := json.Marshal(record)
		if err != nil {
			return fmt.Errorf("record of node %q: %w", node, err)
		}
		_, err = r.o.Store.Commit(ctx, store.Write{Key: recordPrefix + node, Value: value, Expect: revision})
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, store.ErrConflict):
			return unavailable(node, err)
		}
	}
}

func unavailable(node string, err error) error {
	return fmt.Errorf("record of node %q: %w: %w", node, kb.ErrUnavailable, err)
}
