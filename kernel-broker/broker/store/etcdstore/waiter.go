// SPDX-License-Identifier: Apache-2.0

package etcdstore

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
)

const (
	// waiterTTL is how long a broker that waited and died is still seen to wait.
	waiterTTL = 3 * watchTime
	// mostWaiters are listed.
	mostWaiters = 16
)

// waiter shows others that a broker waits, by a key that ends with its lease.
type waiter struct {
	store *Store
	text  string
	lease clientv3.LeaseID // 0: there is none yet
}

// show is called in each turn of the wait. What fails is tried again in the next one: it is for eyes only.
func (w *waiter) show(ctx context.Context) {
	if w.text == "" {
		return
	}
	if w.lease != 0 && w.store.keepAlive(ctx, w.lease) == nil {
		return
	}
	ctx, cancel := w.store.request(ctx)
	defer cancel()
	granted, err := w.store.client.Grant(ctx, int64(waiterTTL/time.Second))
	if err != nil {
		return
	}
	w.lease = granted.ID
	if _, err := w.store.client.Put(ctx, fmt.Sprintf("%s%s%016x", w.store.prefix, store.WaitingPrefix, int64(w.lease)), w.text, clientv3.WithLease(w.lease)); err != nil {
		w.lease = 0
	}
}

// leave is for a broker that waits no more.
func (w *waiter) leave() {
	if w.lease == 0 {
		return
	}
	ctx, cancel := w.store.request(context.Background())
	defer cancel()
	if _, err := w.store.client.Revoke(ctx, w.lease); err != nil {
		w.store.log.Debug("others see this broker wait for a while", "for", waiterTTL, "error", err)
	}
}

// Waiting are the brokers that wait, in the words of each.
func (s *Store) Waiting(ctx context.Context) (waiters []string, err error) {
	ctx, cancel := s.request(ctx)
	defer cancel()
	have, err := s.client.Get(ctx, s.prefix+store.WaitingPrefix, clientv3.WithPrefix(), clientv3.WithLimit(mostWaiters))
	if err != nil {
		return nil, fmt.Errorf("who waits: %w", translate(err))
	}
	for _, kv := range have.Kvs {
		waiters = append(waiters, string(kv.Value))
	}
	return waiters, nil
}
