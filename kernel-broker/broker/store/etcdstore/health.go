// SPDX-License-Identifier: Apache-2.0

package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
)

// Every user may ask for the broker's health, so the answer is kept.
const (
	keepHealth = time.Second
	healthKey  = "health"
)

// Health finds out whether the store takes writes: a full one still answers reads.
func (s *Store) Health(ctx context.Context) (string, error) {
	return s.health.Get(ctx, struct{}{}, func(ctx context.Context) (string, time.Duration, error) {
		text, err := s.tryWrite(ctx)
		return text, keepHealth, err
	})
}

// tryWrite commits what the store must refuse as a conflict: the first revision of a write is 2. A store that takes no
// writes refuses it before it compares revisions.
func (s *Store) tryWrite(ctx context.Context) (string, error) {
	begin := time.Now()
	_, err := s.Commit(ctx, store.Write{Key: healthKey, Value: []byte("?"), Expect: 1})
	switch {
	case err == nil:
		return "", errors.New("the store took a write that conflicts")
	case !errors.Is(err, store.ErrConflict):
		return "", err
	}
	return fmt.Sprintf("answered in %v", time.Since(begin).Round(10*time.Microsecond)), nil
}
