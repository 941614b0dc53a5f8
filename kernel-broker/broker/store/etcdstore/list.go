// SPDX-License-Identifier: Apache-2.0

package etcdstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
)

// listAttempts bounds how often a List starts again because its revision was
// compacted between two pages.
const listAttempts = 3

// List implements store.Store. It reads page by page at the revision of the
// first page, each page with a timeout of its own.
func (s *Store) List(ctx context.Context, prefix string) ([]store.Record, int64, error) {
	var err error
	for range listAttempts {
		var records []store.Record
		var at int64
		records, at, err = s.listOnce(ctx, s.prefix+prefix)
		if err == nil {
			return records, at, nil
		}
		if !errors.Is(err, store.ErrCompacted) {
			break
		}
	}
	return nil, 0, fmt.Errorf("list %q: %w", prefix, err)
}

func (s *Store) listOnce(ctx context.Context, prefix string) ([]store.Record, int64, error) {
	var records []store.Record
	var at int64
	from, end := prefix, clientv3.GetPrefixRangeEnd(prefix)
	for {
		resp, err := s.page(ctx, from, end, at, pageSize)
		if err != nil {
			return nil, 0, err
		}
		at = cmp.Or(at, resp.Header.Revision)
		for _, kv := range resp.Kvs {
			records = append(records, s.record(kv))
		}
		if !resp.More || len(resp.Kvs) == 0 {
			return records, at, nil
		}
		from = string(resp.Kvs[len(resp.Kvs)-1].Key) + "\x00"
	}
}

// Range implements store.Store.
func (s *Store) Range(ctx context.Context, from, before string, limit int) ([]store.Record, error) {
	err := store.CheckRange(from, before, limit)
	var resp *clientv3.GetResponse
	if err == nil {
		resp, err = s.page(ctx, s.prefix+from, s.prefix+before, 0, limit)
	}
	if err != nil {
		return nil, fmt.Errorf("range %q to %q: %w", from, before, err)
	}
	var records []store.Record
	for _, kv := range resp.Kvs {
		records = append(records, s.record(kv))
	}
	return records, nil
}

// page reads from a key up to an end at a revision, 0 meaning now. It uses key order, the server's own: for any other
// order etcd reads everything before it applies the limit.
func (s *Store) page(ctx context.Context, from, end string, at int64, limit int) (*clientv3.GetResponse, error) {
	ctx, cancel := s.request(ctx)
	defer cancel()
	resp, err := s.client.Get(ctx, from, clientv3.WithRange(end), clientv3.WithRev(at),
		clientv3.WithLimit(int64(limit)), clientv3.WithSort(clientv3.SortByKey, clientv3.SortAscend))
	if err != nil {
		return nil, translate(err)
	}
	return resp, nil
}

// record makes the key relative. The response's bytes are not shared.
func (s *Store) record(kv *mvccpb.KeyValue) store.Record {
	record := store.Record{Key: string(kv.Key[len(s.prefix):]), Revision: kv.ModRevision}
	if len(kv.Value) > 0 {
		record.Value = kv.Value
	}
	return record
}
