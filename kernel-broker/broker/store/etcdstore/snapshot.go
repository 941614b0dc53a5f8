// SPDX-License-Identifier: Apache-2.0

package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
)

// snapshotPage is small: records may be large.
const snapshotPage = 32

// Snapshot is the whole namespace at one revision, for as long as etcd keeps that.
type Snapshot struct {
	Revision int64
	Count    int // of keys, also of those that are the store's own

	store *Store
}

// Snapshot fixes the revision.
func (s *Store) Snapshot(ctx context.Context) (*Snapshot, error) {
	ctx, cancel := s.request(ctx)
	defer cancel()
	resp, err := s.client.Get(ctx, s.prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return nil, fmt.Errorf("snapshot: %w", translate(err))
	}
	return &Snapshot{resp.Header.Revision, int(resp.Count), s}, nil
}

// Records are in the order of their keys. After an error there is no further one.
func (p *Snapshot) Records(ctx context.Context) iter.Seq2[store.Record, error] {
	return func(yield func(store.Record, error) bool) {
		s := p.store
		for from, end := s.prefix, clientv3.GetPrefixRangeEnd(s.prefix); ; {
			resp, err := s.page(ctx, from, end, p.Revision, snapshotPage)
			if err != nil {
				yield(store.Record{}, fmt.Errorf("snapshot: %w", err))
				return
			}
			for _, kv := range resp.Kvs {
				if rec := s.record(kv); !store.Own(rec.Key) && !yield(rec, nil) {
					return
				}
			}
			if !resp.More || len(resp.Kvs) == 0 {
				return
			}
			from = string(resp.Kvs[len(resp.Kvs)-1].Key) + "\x00"
		}
	}
}

// Uncompacted reports whether etcd still has the history since a key was made: then nothing compacts it.
func (s *Store) Uncompacted(ctx context.Context, key string) (bool, error) {
	ctx, cancel := s.request(ctx)
	defer cancel()
	resp, err := s.client.Get(ctx, s.prefix+key, clientv3.WithKeysOnly())
	if err == nil && len(resp.Kvs) > 0 {
		_, err = s.client.Get(ctx, s.prefix+key, clientv3.WithKeysOnly(), clientv3.WithRev(resp.Kvs[0].CreateRevision))
	}
	if errors.Is(err, rpctypes.ErrCompacted) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("history of %q: %w", key, translate(err))
	}
	return len(resp.Kvs) > 0, nil
}
