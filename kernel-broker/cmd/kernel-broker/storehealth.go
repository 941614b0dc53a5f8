// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/cache"
)

// Every user may ask for the broker's health, so the store's answer is kept.
const (
	keepStoreHealth = time.Second
	healthKey       = "health"
)

// storeHealth finds out whether the store takes writes: a full one still answers reads.
type storeHealth struct {
	store   store.Store
	answers cache.Cache[struct{}, string]
}

func newStoreHealth(kept store.Store) *storeHealth { return &storeHealth{store: kept} }

// ask is the health component of the store.
func (h *storeHealth) ask(ctx context.Context) (string, error) {
	return h.answers.Get(ctx, struct{}{}, func(ctx context.Context) (string, time.Duration, error) {
		text, err := h.tryWrite(ctx)
		return text, keepStoreHealth, err
	})
}

// tryWrite commits what the store must refuse as a conflict: the first revision of a write is 2. A store that takes no
// writes refuses it before it compares revisions.
func (h *storeHealth) tryWrite(ctx context.Context) (string, error) {
	begin := time.Now()
	_, err := h.store.Commit(ctx, store.Write{Key: healthKey, Value: []byte("?"), Expect: 1})
	switch {
	case err == nil:
		return "", errors.New("the store took a write that conflicts")
	case !errors.Is(err, store.ErrConflict):
		return "", err
	}
	return fmt.Sprintf("answered in %v", time.Since(begin).Round(10*time.Microsecond)), nil
}
