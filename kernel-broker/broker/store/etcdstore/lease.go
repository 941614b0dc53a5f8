// SPDX-License-Identifier: Apache-2.0

package etcdstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
)

// DefaultTTL is how long after its last sign a holder of the cluster is held for
// dead.
const DefaultTTL = 3 * time.Second

// Claim identifies a broker that wants to act on a namespace.
type Claim struct {
	// Holder is for administrators: who acts, and since when.
	Holder string
	// Waiter is the same of a broker that waits; empty: nobody sees it wait.
	Waiter string
	// Place names something that only one process can have, such as a locked directory. A key with the claimer's own
	// place belongs to a dead process.
	Place string
	// TTL of the lease; 0: DefaultTTL.
	TTL time.Duration
	// Patience is for how long the leadership is not given up when the lease may be over and etcd does not answer; 0: the TTL.
	Patience time.Duration
	// Waits is called once for each holder that is waited for.
	Waits func(holder string)
	// Alive is called while it waits, and shows that the wait goes on; nil: nobody asks.
	Alive func()
	// Again is set where this process acted before: an etcd that does not answer is waited for.
	Again bool
}

// Lead waits until no other broker acts on the namespace and acquires it: one key bound to a lease. From then on each
// commit requires that key unchanged, so a broker that lost the lease without noticing changes nothing. Lost is closed
// when the lease is lost; then Lead may be called again. Without an etcd it fails, but not once it waits.
func (s *Store) Lead(ctx context.Context, c Claim) error {
	c.TTL = cmp.Or(c.TTL, DefaultTTL)
	if c.Alive == nil {
		c.Alive = func() {}
	}
	last, away := "", false
	w := waiter{store: s, prefix: store.WaitingPrefix, text: c.Waiter}
	defer w.leave()
	for {
		holder, revision, err := s.claim(ctx, c)
		switch {
		case errors.Is(err, store.ErrUnavailable) && (last != "" || c.Again) && ctx.Err() == nil:
			if !away {
				s.log.Warn("etcd does not answer; waiting", "broker", last, "error", err)
			}
			away, holder = true, cmp.Or(last, "etcd does not answer, so nobody knows which one")
		case err != nil || holder == "":
			return err
		default:
			away = false
		}
		if holder != last && c.Waits != nil {
			c.Waits(holder)
		}
		last = holder
		c.Alive()
		if !away {
			w.show(ctx)
		}
		if err := s.awaitChange(ctx, c, revision); err != nil {
			return fmt.Errorf("%s acts: %w", holder, err)
		}
	}
}

const (
	// watchTime bounds one watch: then the key is read again, whatever became of the watch.
	watchTime = DefaultTimeout
	// claimPause lies between two tries without a watch.
	claimPause = 250 * time.Millisecond
	// alivePause lies between two signs of life.
	alivePause = time.Second
)

// awaitChange waits until the key of a holder changes after a revision, and not for ever; without a revision for a moment.
func (s *Store) awaitChange(ctx context.Context, c Claim, revision int64) error {
	limit := watchTime
	if revision == 0 {
		limit = claimPause
	}
	over := time.NewTimer(limit)
	defer over.Stop()
	alive := time.NewTicker(min(alivePause, c.TTL/4))
	defer alive.Stop()
	var changed <-chan bool
	if revision != 0 {
		watching, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		changed = s.watch(watching, revision)
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.ctx.Done():
			return fmt.Errorf("%w: closed", store.ErrUnavailable)
		case <-over.C:
			return nil
		case <-alive.C:
			c.Alive()
		case event := <-changed:
			if event {
				return nil
			}
			changed = nil
			over.Reset(claimPause)
		}
	}
}

// watch tells once whether the key of the holder changed after a revision, or the watch ended without that. It has a goroutine
// of its own, since etcd's client does not return before etcd has begun the watch.
func (s *Store) watch(ctx context.Context, revision int64) <-chan bool {
	changed := make(chan bool, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return nil
	}
	s.group.Go(func() {
		event := false
		// A member that has lost the others ends the watch.
		for answer := range s.client.Watch(clientv3.WithRequireLeader(ctx), s.prefix+store.ActingKey, clientv3.WithRev(revision+1)) {
			if event = len(answer.Events) > 0; event || answer.Err() != nil {
				break
			}
		}
		changed <- event
	})
	return changed
}

// TryLead is Lead without waiting. It returns the broker that acts; nobody does if that is empty, and the caller leads.
func (s *Store) TryLead(ctx context.Context, c Claim) (holder string, err error) {
	c.TTL = cmp.Or(c.TTL, DefaultTTL)
	holder, _, err = s.claim(ctx, c)
	return holder, err
}

// Acting names the broker that acts, if any.
func (s *Store) Acting(ctx context.Context) (holder string, err error) {
	ctx, cancel := s.request(ctx)
	defer cancel()
	have, err := s.client.Get(ctx, s.prefix+store.ActingKey)
	if err != nil {
		return "", fmt.Errorf("who acts: %w", translate(err))
	}
	if len(have.Kvs) > 0 {
		holder = holderOf(have.Kvs)
	}
	return holder, nil
}

// claim tries once. It returns the current holder, if any, and the revision at which it was read.
func (s *Store) claim(ctx context.Context, c Claim) (holder string, revision int64, err error) {
	key := s.prefix + store.ActingKey
	rctx, cancel := s.request(ctx)
	defer cancel()
	have, err := s.client.Txn(rctx).Then(clientv3.OpGet(key), clientv3.OpGet(s.prefix+store.EpochKey)).Commit()
	if err != nil {
		return "", 0, fmt.Errorf("who acts: %w", translate(err))
	}
	previous, err := parseEpoch(have.Responses[1].GetResponseRange().GetKvs())
	if err != nil {
		return "", 0, err
	}
	if kvs := have.Responses[0].GetResponseRange().GetKvs(); len(kvs) > 0 {
		place, who := parseHolder(kvs[0].Value)
		if place == "" || place != c.Place {
			return who, have.Header.Revision, nil
		}
		// A put would keep the creation revision that fences the previous holder, so the old key is deleted first.
		gone, err := s.client.Txn(rctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", kvs[0].ModRevision)).Then(clientv3.OpDelete(key)).Commit()
		if err != nil {
			return "", 0, fmt.Errorf("lease: %w", translate(err))
		}
		if !gone.Succeeded {
			return justBegun, 0, nil
		}
	}
	asked := time.Now()
	lease, err := s.client.Grant(rctx, int64((c.TTL+time.Second-1)/time.Second))
	if err != nil {
		return "", 0, fmt.Errorf("lease: %w", translate(err))
	}
	epoch := previous.next(asked)
	txn, err := s.client.Txn(rctx).
		If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0), previous.unchanged(s.prefix)).
		Then(clientv3.OpPut(key, holderText(c), clientv3.WithLease(lease.ID)), epoch.put(s.prefix)).Commit()
	if err != nil || !txn.Succeeded {
		_, rerr := s.client.Revoke(rctx, lease.ID)
		if err != nil {
			return "", 0, errors.Join(fmt.Errorf("lease: %w", translate(err)), rerr)
		}
		return justBegun, 0, nil
	}
	return "", 0, s.begin(newTerm(epoch.number, txn.Header.Revision, lease.ID, asked, time.Duration(lease.TTL)*time.Second), c.Patience)
}

// justBegun is a holder of whom nothing is known yet.
const justBegun = "another broker that has just begun"

// begin makes the term the store's, and renews its lease until Close.
func (s *Store) begin(t *term, patience time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return fmt.Errorf("%w: closed", store.ErrUnavailable)
	}
	s.term.Store(t)
	s.group.Go(func() { s.renew(t, cmp.Or(patience, t.ttl)) })
	return nil
}

// holderText is the key's value: the place, a line break, and the holder.
func holderText(c Claim) string { return c.Place + "\n" + c.Holder }

func parseHolder(value []byte) (place, who string) {
	place, who, _ = strings.Cut(string(value), "\n")
	return place, who
}

// holderOf names who acts by the key, if there is one.
func holderOf(kvs []*mvccpb.KeyValue) string {
	if len(kvs) == 0 {
		return "nobody"
	}
	_, holder := parseHolder(kvs[0].Value)
	return holder
}
