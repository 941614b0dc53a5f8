// SPDX-License-Identifier: Apache-2.0

package etcdstore

import (
	"context"
	"fmt"
	"iter"

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
