// SPDX-License-Identifier: Apache-2.0

package etcdstore

import (
	"cmp"
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
)

const (
	// waiterTTL is how long a broker that waited and died is still seen to wait.
	waiterTTL = 3 * watchTime
	// mostShown are listed.
	mostShown = 16
)

// waiter shows others that a broker waits, or runs, by a key that ends with its lease.
type waiter struct {
	store  *Store
	prefix string
	name   string // of the key; empty: by the lease
	text   string
	lease  clientv3.LeaseID // 0: there is none yet
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
	name := cmp.Or(w.name, fmt.Sprintf("%016x", int64(w.lease)))
	if _, err := w.store.client.Put(ctx, w.store.prefix+w.prefix+name, w.text, clientv3.WithLease(w.lease)); err != nil {
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
func (s *Store) Waiting(ctx context.Context) ([]string, error) {
	return s.shown(ctx, store.WaitingPrefix, "who waits")
}

// Announce shows all brokers a text of one that runs, until ctx ends. The one before of that name is gone.
func (s *Store) Announce(ctx context.Context, name, text string) {
	w := waiter{store: s, prefix: store.PeersPrefix, name: name, text: text}
	defer w.leave()
	again := time.NewTicker(watchTime)
	defer again.Stop()
	for {
		w.show(ctx)
		select {
		case <-ctx.Done():
			return
		case <-again.C:
		}
	}
}

// Announced are the texts of all brokers that run, also of this one.
func (s *Store) Announced(ctx context.Context) ([]string, error) {
	return s.shown(ctx, store.PeersPrefix, "which brokers run")
}

func (s *Store) shown(ctx context.Context, prefix, what string) (texts []string, err error) {
	ctx, cancel := s.request(ctx)
	defer cancel()
	have, err := s.client.Get(ctx, s.prefix+prefix, clientv3.WithPrefix(), clientv3.WithLimit(mostShown))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, translate(err))
	}
	for _, kv := range have.Kvs {
		texts = append(texts, string(kv.Value))
	}
	return texts, nil
}
