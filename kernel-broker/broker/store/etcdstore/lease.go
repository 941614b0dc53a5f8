// SPDX-License-Identifier: Apache-2.0

package etcdstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
)

// DefaultTTL is how long after its last sign a holder of the cluster is held for
// dead.
const DefaultTTL = 10 * time.Second

// Claim identifies a broker that wants to act on a namespace.
type Claim struct {
	// Holder is for administrators: who acts, and since when.
	Holder string
	// Place names something that only one process can have, such as a locked directory. A key with the claimer's own
	// place belongs to a dead process.
	Place string
	// TTL of the lease; 0: DefaultTTL.
	TTL time.Duration
	// Waits is called once for each holder that is waited for.
	Waits func(holder string)
	// Alive is called after each try, and shows that the wait goes on; nil: nobody asks.
	Alive func()
}

// leadership is the right to write that a lease grants.
type leadership struct {
	created int64                // revision of the key, which is in every commit
	session *concurrency.Session // renews the lease, and ends by this host's clock when that fails for the lease's duration
}

// Lead waits until no other broker acts on the namespace and acquires it: one key bound to a lease. From then on each
// commit requires that key unchanged, so a broker that lost the lease without noticing changes nothing. Lost is closed
// when the lease is lost. Without an etcd it fails, but not once it waits.
func (s *Store) Lead(ctx context.Context, c Claim) error {
	c.TTL = cmp.Or(c.TTL, DefaultTTL)
	last, away := "", false
	for {
		holder, err := s.claim(ctx, c)
		switch {
		case errors.Is(err, store.ErrUnavailable) && last != "" && ctx.Err() == nil:
			if !away {
				s.log.Warn("etcd does not answer; waiting", "broker", last, "error", err)
			}
			away, holder = true, last
		case err != nil || holder == "":
			return err
		default:
			away = false
		}
		if holder != last && c.Waits != nil {
			c.Waits(holder)
		}
		last = holder
		if c.Alive != nil {
			c.Alive()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s acts: %w", holder, ctx.Err())
		case <-s.ctx.Done():
			return fmt.Errorf("%w: closed", store.ErrUnavailable)
		case <-time.After(min(time.Second, c.TTL/4)):
		}
	}
}

// TryLead is Lead without waiting. It returns the broker that acts; nobody does if that is empty, and the caller leads.
func (s *Store) TryLead(ctx context.Context, c Claim) (holder string, err error) {
	c.TTL = cmp.Or(c.TTL, DefaultTTL)
	return s.claim(ctx, c)
}

// Acting names the broker that acts, if any.
func (s *Store) Acting(ctx context.Context) (holder string, err error) {
	ctx, cancel := s.request(ctx)
	defer cancel()
	have, err := s.client.Get(ctx, s.prefix+store.ActingKey)
	if err != nil {
		return "", fmt.Errorf("who acts: %w", translate(err))
	}
	for _, kv := range have.Kvs {
		_, holder = parseHolder(kv.Value)
	}
	return holder, nil
}

// claim tries once and returns the current holder, if any.
func (s *Store) claim(ctx context.Context, c Claim) (holder string, err error) {
	key := s.prefix + store.ActingKey
	rctx, cancel := s.request(ctx)
	defer cancel()
	have, err := s.client.Get(rctx, key)
	if err != nil {
		return "", fmt.Errorf("who acts: %w", translate(err))
	}
	var revision int64
	if len(have.Kvs) > 0 {
		place, who := parseHolder(have.Kvs[0].Value)
		if place == "" || place != c.Place {
			return who, nil
		}
		revision = have.Kvs[0].ModRevision
	}
	lease, err := s.client.Grant(rctx, int64((c.TTL+time.Second-1)/time.Second))
	if err != nil {
		return "", fmt.Errorf("lease: %w", translate(err))
	}
	// A put would keep the creation revision that fences the previous holder, so the old key is deleted first.
	txn, err := s.client.Txn(rctx).
		If(clientv3.Compare(clientv3.ModRevision(key), "=", revision)).
		Then(clientv3.OpDelete(key)).Commit()
	if err == nil && txn.Succeeded {
		txn, err = s.client.Txn(rctx).
			If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
			Then(clientv3.OpPut(key, holderText(c), clientv3.WithLease(lease.ID))).Commit()
	}
	if err != nil || !txn.Succeeded {
		_, rerr := s.client.Revoke(rctx, lease.ID)
		if err != nil {
			return "", errors.Join(fmt.Errorf("lease: %w", translate(err)), rerr)
		}
		return "another broker that has just begun", nil
	}
	return "", s.keep(lease.ID, txn.Header.Revision)
}

// keep renews the lease until Close.
func (s *Store) keep(id clientv3.LeaseID, created int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return fmt.Errorf("%w: closed", store.ErrUnavailable)
	}
	session, err := concurrency.NewSession(s.client.Client, concurrency.WithLease(id), concurrency.WithContext(s.ctx))
	if err != nil {
		return fmt.Errorf("lease: %w", translate(err))
	}
	s.leads.Store(&leadership{created, session})
	return nil
}

// resign revokes the lease and with it the key, so that the next broker need not wait.
func (s *Store) resign() {
	l := s.leads.Load()
	if l == nil || l.session.Ctx().Err() != nil {
		return
	}
	l.session.Orphan()
	ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
	defer cancel()
	if _, err := s.client.Revoke(ctx, l.session.Lease()); err != nil {
		s.log.Warn("lease not released, the next broker has to wait", "error", err)
	}
}

// Lost is closed when the leadership is lost, also by Close; nil, which never
// is, without one.
func (s *Store) Lost() <-chan struct{} {
	if l := s.leads.Load(); l != nil {
		return l.session.Done()
	}
	return nil
}

// fence is the condition of every commit by a leader.
func (s *Store) fence() (clientv3.Cmp, bool) {
	l := s.leads.Load()
	if l == nil {
		return clientv3.Cmp{}, false
	}
	return clientv3.Compare(clientv3.CreateRevision(s.prefix+store.ActingKey), "=", l.created), true
}

// holderText is the key's value: the place, a line break, and the holder.
func holderText(c Claim) string { return c.Place + "\n" + c.Holder }

func parseHolder(value []byte) (place, who string) {
	place, who, _ = strings.Cut(string(value), "\n")
	return place, who
}

// overtaken reports whether a commit was refused because another broker acts or may act. The transaction's else branch
// reads the key last.
func (s *Store) overtaken(resp *clientv3.TxnResponse) error {
	l, holder := s.leads.Load(), "nobody"
	if last := len(resp.Responses) - 1; last >= 0 {
		for _, kv := range resp.Responses[last].GetResponseRange().GetKvs() {
			if kv.CreateRevision == l.created {
				return nil
			}
			_, holder = parseHolder(kv.Value)
		}
	}
	l.session.Orphan()
	return fmt.Errorf("commit: %w: %s acts now", store.ErrOvertaken, holder)
}
