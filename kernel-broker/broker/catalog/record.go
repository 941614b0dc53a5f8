// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/strictjson"
)

const (
	keyPrefix    = "profiles/"
	recordFormat = 1

	// A client repeats a request within seconds; no more than 32 changes of one profile happen in between.
	maxRequests = 32
	maxWrites   = 32
	maxFailures = 256
)

// record is the stored value of a profile.
type record struct {
	Format  int        `json:"format"`
	Profile kb.Profile `json:"profile"`
	// Requests that were carried out, oldest first.
	Requests []request `json:"requests,omitempty"`
	// Failures are the ids of the boots counted last, oldest first.
	Failures []string `json:"failures,omitempty"`
	// Writes are random ids of the last changes, oldest first. With them a writer whose commit got no answer learns
	// whether it was applied, even after later writes.
	Writes []string `json:"writes"`
}

// request identifies a change by its id and its content.
type request struct {
	ID     string `json:"id"`
	Digest string `json:"digest"`
}

func key(name string) string { return keyPrefix + name }

// encode drops the changes that the history has no room for.
func (r *record) encode() ([]byte, error) {
	r.Format = recordFormat
	history := r.Profile.History
	r.Profile.History = nil
	value, err := marshal(r)
	if err == nil && len(history) > 0 {
		room := store.MaxCommitBytes - len(key(r.Profile.Name)) - len(value)
		if r.Profile.History, err = latest(history, min(room, historyBytes)); err == nil {
			value, err = marshal(r)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("record of profile %q: %w", r.Profile.Name, err)
	}
	return value, nil
}

// marshal escapes only what JSON requires: texts count against the size of a record.
func marshal(v any) ([]byte, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

// decode rejects a newer broker's format: rewriting it would drop unknown fields.
func decode(name string, value []byte) (*record, error) {
	r := &record{}
	if err := strictjson.Decode(value, r); err != nil {
		return nil, fmt.Errorf("record of profile %q: %w", name, err)
	}
	if r.Format != recordFormat {
		return nil, fmt.Errorf("record of profile %q has format %d, this program supports %d", name, r.Format, recordFormat)
	}
	if r.Profile.Name != name {
		return nil, fmt.Errorf("record of profile %q holds profile %q", name, r.Profile.Name)
	}
	return r, nil
}

// done reports whether a request was carried out before. The same id with
// other content is a mistake of the caller.
func (r *record) done(id, digest string) (bool, error) {
	for _, old := range r.Requests {
		if old.ID != id {
			continue
		}
		if old.Digest != digest {
			return false, fmt.Errorf("request id %q was used for another request: %w", id, kb.ErrInvalid)
		}
		return true, nil
	}
	return false, nil
}

func (r *record) remember(id, digest string) {
	r.Requests = append(r.Requests, request{ID: id, Digest: digest})
	r.Requests = r.Requests[max(0, len(r.Requests)-maxRequests):]
}

func (r *record) sign(nonce string) {
	r.Writes = append(r.Writes, nonce)
	r.Writes = r.Writes[max(0, len(r.Writes)-maxWrites):]
}

// digestOf distinguishes two requests with the same id.
func digestOf(parts ...any) (string, error) {
	text, err := json.Marshal(parts)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8]), nil
}

// A profile is one record of the store, which limits its size. Kernels and signatures could fill it and leave no space
// for a quarantine. So registering and signing reserve space for everything else: the lifecycle of each version and the
// requests at their maximum, and the history, whose oldest changes are dropped.

// historyBytes is the history's share of a record.
const historyBytes = 64 << 10

// checkRecordSize rejects a change that would use the reserved space of a profile.
func checkRecordSize(before, after kb.Profile) error {
	size, err := maxRecordSize(after)
	if err != nil || size <= store.MaxCommitBytes {
		return err
	}
	// An oversized record from before this limit may shrink.
	if old, err := maxRecordSize(before); err != nil || size <= old {
		return err
	}
	return fmt.Errorf("profile %q is full: %d versions with their signatures, and space reserved for quarantines, retirements and the history, "+
		"need %d bytes, the limit is %d; register the kernel as another profile, or sign with fewer keys: %w",
		after.Name, len(after.Versions), size, store.MaxCommitBytes, kb.ErrFailedPrecondition)
}

// maxRecordSize is the maximum size of a profile's record without further registrations or signatures.
func maxRecordSize(p kb.Profile) (int, error) {
	const nonce = "0123456789abcdef" // like the digest of a request
	// A quotation mark takes two bytes, other printable characters take one.
	reason := strings.Repeat(`"`, kb.MaxReason)
	since := time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
	id := strings.Repeat(`"`, kb.MaxRequestID)

	p.Versions = slices.Clone(p.Versions)
	for i := range p.Versions {
		v := &p.Versions[i]
		v.BootFailures = math.MaxUint32
		v.FailedOn = slices.Repeat([]string{strings.Repeat("n", kb.MaxRequestID)}, maxFailedOn)
		v.Quarantine = &kb.Quarantine{Reason: failedToBoot(math.MaxUint32, reason), Since: since}
		v.Retired = &kb.Retirement{Reason: reason, Since: since}
	}
	p.DefaultVersion = math.MaxUint32
	p.Previous = slices.Repeat([]uint32{math.MaxUint32}, kb.MaxPrevious)
	p.History = nil
	value, err := (&record{
		Profile:  p,
		Requests: slices.Repeat([]request{{ID: id, Digest: nonce}}, maxRequests),
		Failures: slices.Repeat([]string{id}, maxFailures),
		Writes:   slices.Repeat([]string{nonce}, maxWrites),
	}).encode()
	return len(key(p.Name)) + len(value) + historyBytes, err
}

// latest returns the last changes of a history that fit into room bytes.
func latest(history []kb.Change, room int) ([]kb.Change, error) {
	room -= len(`,"history":[]`)
	for i := len(history) - 1; i >= 0; i-- {
		text, err := marshal(history[i])
		if err != nil {
			return nil, err
		}
		if room -= len(text) + len(","); room < 0 {
			return history[i+1:], nil
		}
	}
	return history, nil
}

// Limits of update. Each conflict means that another writer succeeded, so only many concurrent writers of one profile
// use up the tries.
const (
	updateTries    = 16
	updatePauseMin = 10 * time.Millisecond
	updatePauseMax = 500 * time.Millisecond
)

// errNoChange ends an update without a write.
var errNoChange = errors.New("no change")

// update reads a profile's record, applies change and writes it back, fenced by revision, retrying after a conflict.
// change may be called more than once and gets a record without a profile name if there is none yet; it returns
// errNoChange to leave it unchanged. update returns the current record and whether this call changed it.
func (c *Catalog) update(ctx context.Context, name string, change func(*record) error) (*record, bool, error) {
	nonce, err := newNonce()
	if err != nil {
		return nil, false, err
	}
	pause := updatePauseMin
	for try := 1; ; try++ {
		r, done, err := c.updateOnce(ctx, name, nonce, change)
		switch {
		case errors.Is(err, errNoChange):
			return r, false, nil
		case err == nil && done:
			c.Republish()
			return r, true, nil
		case !errors.Is(err, store.ErrConflict) && !errors.Is(err, store.ErrUnavailable):
			return nil, false, err
		case try == updateTries:
			return nil, false, fmt.Errorf("profile %q: given up after %d tries: %w", name, try, err)
		}
		select {
		case <-ctx.Done():
			return nil, false, fmt.Errorf("profile %q: %w: %w", name, kb.ErrUnavailable, ctx.Err())
		case <-time.After(pause):
		}
		pause = min(2*pause, updatePauseMax)
	}
}

// updateOnce is one read, change and write. A record with our nonce was written by an earlier try whose answer was lost.
func (c *Catalog) updateOnce(ctx context.Context, name, nonce string, change func(*record) error) (*record, bool, error) {
	r, revision, err := c.read(ctx, name)
	if errors.Is(err, kb.ErrNotFound) {
		r, revision, err = &record{}, 0, nil
	}
	if err != nil {
		return nil, false, err
	}
	if slices.Contains(r.Writes, nonce) {
		return r, true, nil
	}
	if err := change(r); err != nil {
		return r, false, err
	}
	r.sign(nonce)
	value, err := r.encode()
	if err != nil {
		return nil, false, err
	}
	_, err = c.o.Store.Commit(ctx, store.Write{Key: key(name), Value: value, Expect: revision})
	if errors.Is(err, store.ErrTooLarge) {
		return nil, false, fmt.Errorf("profile %q: %w: %w", name, kb.ErrInvalid, err)
	}
	if err != nil {
		return nil, false, fmt.Errorf("profile %q: %w", name, err)
	}
	return r, true, nil
}

func newNonce() (string, error) {
	var raw [8]byte
	if _, err := rand.Read(raw[:]); err != nil {
		return "", fmt.Errorf("random number: %w", err)
	}
	return hex.EncodeToString(raw[:]), nil
}
