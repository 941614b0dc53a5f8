// SPDX-License-Identifier: Apache-2.0

package etcdstore

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
)

// Commit implements store.Store: one etcd transaction. Its else branch reads the fenced keys, so that the conflict names
// the key as the server saw it at that instant.
func (s *Store) Commit(ctx context.Context, writes ...store.Write) (int64, error) {
	if err := store.Check(writes); err != nil {
		return 0, err
	}
	ctx, cancel := s.request(ctx)
	defer cancel()
	var fences []clientv3.Cmp
	var changes, reads []clientv3.Op
	for _, w := range writes {
		key := s.prefix + w.Key
		if w.Expect != store.AnyRevision {
			fences = append(fences, clientv3.Compare(clientv3.ModRevision(key), "=", w.Expect))
			reads = append(reads, clientv3.OpGet(key, clientv3.WithKeysOnly()))
		}
		if w.Delete {
			changes = append(changes, clientv3.OpDelete(key))
		} else {
			changes = append(changes, clientv3.OpPut(key, string(w.Value)))
		}
	}
	leader, leads := s.fence()
	if leads {
		fences = append(fences, leader)
		reads = append(reads, clientv3.OpGet(s.prefix+leaderKey))
	}
	resp, err := s.client.Txn(ctx).If(fences...).Then(changes...).Else(reads...).Commit()
	if err != nil {
		return 0, fmt.Errorf("commit: %w", translate(err))
	}
	if !resp.Succeeded && leads {
		if err := s.overtaken(resp); err != nil {
			return 0, err
		}
	}
	if !resp.Succeeded {
		return 0, conflict(writes, resp)
	}
	return resp.Header.Revision, nil
}

// conflict finds the first write whose expectation failed. The responses are
// those of the fenced writes, in their order.
func conflict(writes []store.Write, resp *clientv3.TxnResponse) error {
	next := 0
	for _, w := range writes {
		if w.Expect == store.AnyRevision {
			continue
		}
		if next >= len(resp.Responses) {
			break
		}
		var have int64
		if kvs := resp.Responses[next].GetResponseRange().GetKvs(); len(kvs) > 0 {
			have = kvs[0].ModRevision
		}
		if have != w.Expect {
			return &store.ConflictError{Key: w.Key, Expect: w.Expect, Have: have}
		}
		next++
	}
	// The server refused without a reason; nothing was applied.
	return fmt.Errorf("commit: %w: the server names no key", store.ErrConflict)
}
