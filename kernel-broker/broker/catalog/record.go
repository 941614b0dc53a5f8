// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/history"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/strictjson"
)

const (
	keyPrefix    = "profiles/"
	recordFormat = 1

	// A client repeats a request within seconds; no more than 32 changes of one profile happen in between.
	maxRequests = 32
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
	// Writes are of earlier versions: the next change drops them.
	Writes any `json:"writes,omitempty"`
}

// request identifies a change by its id and its content.
type request struct {
	ID     string `json:"id"`
	Digest string `json:"digest"`
}

func key(name string) string { return keyPrefix + name }

// encode drops the changes that the history has no room for in a record of at most the given size.
func (r *record) encode(most int) ([]byte, error) {
	r.Format, r.Writes = recordFormat, nil
	history := r.Profile.History
	r.Profile.History = nil
	value, err := marshal(r)
	if err == nil && len(history) > 0 {
		room := most - len(key(r.Profile.Name)) - len(value)
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
// for a quarantine. So registering and signing leave room for everything else at its longest: the requests, the
// failures, the lifecycle of each version, and the history, whose oldest changes are dropped.
const (
	historyBytes = 64 << 10
	// Requests and failures take 40 KiB at most.
	reservedBytes = historyBytes + 48<<10
	// A quarantine, a retirement and the nodes of failures take 1.3 KiB at most: each character of a reason may need an
	// escape.
	reservedPerVersion = 1536
)

// checkRecordSize rejects a change that would use the reserved space of a profile, whose record has at most the given
// size.
func checkRecordSize(before, after kb.Profile, most int) error {
	size, err := reservedSize(after)
	if err != nil || size <= most {
		return err
	}
	// An oversized record from before this limit may shrink.
	if old, err := reservedSize(before); err != nil || size <= old {
		return err
	}
	return fmt.Errorf("profile %q is full: %d versions with their signatures, and space reserved for quarantines, retirements and the history, "+
		"need %d bytes, the limit is %d; register the kernel as another profile, or sign with fewer keys: %w",
		after.Name, len(after.Versions), size, most, kb.ErrFailedPrecondition)
}

// reservedSize is the size of a profile's record with its reserved space.
func reservedSize(p kb.Profile) (int, error) {
	p.History = nil
	text, err := marshal(p)
	return len(key(p.Name)) + len(text) + reservedBytes + len(p.Versions)*reservedPerVersion, err
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

// update reads a profile's record, applies change and writes it back, fenced by revision, retrying after a conflict and
// after a commit whose answer was lost. change may be called more than once and gets a record without a profile name if
// there is none yet; it returns errNoChange where the record shows that the same change was made before. update returns
// the current record and whether this call changed it.
func (c *Catalog) update(ctx context.Context, name string, change func(*record) error) (*record, bool, error) {
	unknown := false // whether an earlier try was applied
	pause := updatePauseMin
	for try := 1; ; try++ {
		r, err := c.updateOnce(ctx, name, change)
		switch {
		case errors.Is(err, errNoChange):
			if unknown {
				c.Republish()
			}
			return r, unknown, nil
		case err == nil:
			c.Republish()
			return r, true, nil
		case !errors.Is(err, store.ErrConflict) && !errors.Is(err, store.ErrUnavailable):
			return nil, false, err
		case try == updateTries:
			return nil, false, fmt.Errorf("profile %q: given up after %d tries: %w", name, try, err)
		}
		unknown = unknown || errors.Is(err, store.ErrUnavailable)
		select {
		case <-ctx.Done():
			return nil, false, fmt.Errorf("profile %q: %w: %w", name, kb.ErrUnavailable, ctx.Err())
		case <-time.After(pause):
		}
		pause = min(2*pause, updatePauseMax)
	}
}

// updateOnce is one read, change and write.
func (c *Catalog) updateOnce(ctx context.Context, name string, change func(*record) error) (*record, error) {
	r, revision, err := c.read(ctx, name)
	if errors.Is(err, kb.ErrNotFound) {
		r, revision, err = &record{}, 0, nil
	}
	if err != nil {
		return nil, err
	}
	before := r.Profile
	before.Versions, before.History = slices.Clone(before.Versions), slices.Clone(before.History)
	if err := change(r); err != nil {
		return r, err
	}
	value, err := r.encode(c.o.Store.Limits().Bytes)
	if err != nil {
		return nil, err
	}
	err = c.commit(ctx, before, r.Profile, store.Write{Key: key(name), Value: value, Expect: revision})
	if errors.Is(err, store.ErrTooLarge) {
		return nil, fmt.Errorf("profile %q: %w: %w", name, kb.ErrInvalid, err)
	}
	if err != nil {
		return nil, fmt.Errorf("profile %q: %w", name, err)
	}
	return r, nil
}

// commit writes a record together with what happened to its profile.
func (c *Catalog) commit(ctx context.Context, before, after kb.Profile, write store.Write) error {
	if c.o.History == nil {
		_, err := c.o.Store.Commit(ctx, write)
		return err
	}
	_, err := c.o.History.Commit(ctx, history.Profile(before, after, c.o.Now()), write)
	return err
}
