// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
)

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
	_, err = c.store.Commit(ctx, store.Write{Key: key(name), Value: value, Expect: revision})
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
