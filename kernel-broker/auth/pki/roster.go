// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"context"
	"fmt"
	"strings"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/mtls"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
)

// Accept says whether a certificate that leads to an authority is still good.
func (r *Registry) Accept(peer mtls.Peer) error {
	r.mu.RLock()
	revocation := r.revoked[peer.Name.Name]
	r.mu.RUnlock()
	if revocation.Voids(peer.Certificate.NotBefore) {
		return void(peer, revocation)
	}
	return nil
}

func void(peer mtls.Peer, revocation *Revocation) error {
	return fmt.Errorf("node %q was revoked at %s: %w", peer.Name.Name, revocation.At.UTC().Format(time.RFC3339), kb.ErrDenied)
}

// OnVoid has a function called for each node that is revoked from now on, after
// Accept began to refuse it. The function must not block.
func (r *Registry) OnVoid(cut func(node string)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.onVoid = cut
}

// Revoke voids the certificates that a node has, and its token.
func (r *Registry) Revoke(ctx context.Context, node, by, reason string) error {
	if err := kb.ValidateNodeName(node); err != nil {
		return err
	}
	var revocation *Revocation
	err := r.change(ctx, node, func(record *Record) error {
		revocation = record.revoke(r.now(), by, reason)
		return nil
	})
	if err != nil {
		return err
	}
	r.log.Warn("node revoked", "node", node, "by", by, "reason", reason)
	// Without waiting for the store's own news of it.
	r.learn(node, revocation)
	return nil
}

// learn remembers a revocation, unless a newer one is known.
func (r *Registry) learn(node string, revocation *Revocation) {
	r.mu.Lock()
	if old := r.revoked[node]; revocation == nil || old != nil && !revocation.At.After(old.At) {
		r.mu.Unlock()
		return
	}
	r.revoked[node] = revocation
	cut := r.onVoid
	r.mu.Unlock()
	cut(node)
}

// Run follows the records: another broker on the same store may revoke, too. It
// ends with its context.
func (r *Registry) Run(ctx context.Context) error {
	return store.Follow(ctx, r.store, recordPrefix, r.reset, func(event store.Event) {
		if !event.Deleted {
			r.take(event.Record)
		}
	})
}

var forEver = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)

func (r *Registry) reset(records []store.Record, _ int64) {
	for _, rec := range records {
		r.take(rec)
	}
}

// take learns from the store. What is remembered never gets less: a record that is gone lets nobody in who was out.
func (r *Registry) take(rec store.Record) {
	record, err := decode(rec)
	if err != nil {
		// What it says may be that the node is revoked.
		r.log.Error("node kept out: its record is damaged", "error", err)
		record.Node, record.Revoked = strings.TrimPrefix(rec.Key, recordPrefix), &Revocation{At: forEver}
	}
	r.learn(record.Node, record.Revoked)
}
