// SPDX-License-Identifier: Apache-2.0

package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
)

// term is the time for which one broker acts, by its lease. Its own clock tells it when the lease may be over, counted from
// before the request that renewed it was sent: etcd counts from a later moment, so nobody else acts before.
//
//	acts    until is to come
//	pauses  until is over; a renewal has it act again
//	over    the lease is gone, another broker acts, or etcd was away for too long
type term struct {
	epoch   uint64
	created int64 // revision of the key, which is in every commit
	lease   clientv3.LeaseID
	ttl     time.Duration
	over    chan struct{}

	mu    sync.Mutex
	until time.Time
	why   error              // of what is over
	acts  context.Context    // ends when the broker pauses
	pause context.CancelFunc // of acts
	timer *time.Timer        // pauses
}

func newTerm(epoch uint64, created int64, lease clientv3.LeaseID, asked time.Time, ttl time.Duration) *term {
	t := &term{epoch: epoch, created: created, lease: lease, ttl: ttl, over: make(chan struct{})}
	t.acts, t.pause = context.WithCancel(context.Background())
	t.timer = time.AfterFunc(ttl, t.look)
	t.renewed(asked)
	return t
}

// safety is the part of a lease for which a broker no longer begins anything: what it has begun reaches others a little later,
// and clocks differ.
const safety = 10

// renewed notes a renewal that was asked for at a time.
func (t *term) renewed(asked time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.why != nil {
		return
	}
	t.until = asked.Add(t.ttl - t.ttl/safety)
	if left := time.Until(t.until); left > 0 {
		t.timer.Reset(left)
		if t.acts.Err() != nil {
			t.acts, t.pause = context.WithCancel(context.Background())
		}
	}
}

// look pauses what runs when the time is over.
func (t *term) look() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.why != nil || !time.Now().Before(t.until) {
		t.pause()
	}
}

// end ends the term for good.
func (t *term) end(why error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.why != nil {
		return
	}
	t.why = why
	t.timer.Stop()
	t.pause()
	close(t.over)
}

// err is nil while no other broker can act.
func (t *term) err() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.errLocked()
}

func (t *term) errLocked() error {
	switch late := time.Since(t.until); {
	case t.why != nil:
		return t.why
	case late >= 0:
		return fmt.Errorf("%w: the lease was not renewed for %v, so this broker pauses", store.ErrUnavailable, (t.ttl + late).Round(time.Second))
	}
	return nil
}

// hold returns a context that ends when the broker may not act any more.
func (t *term) hold(ctx context.Context) (context.Context, context.CancelFunc, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.errLocked(); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(t.acts, func() { cancel(errPaused) })
	return ctx, func() { stop(); cancel(nil) }, nil
}

var errPaused = fmt.Errorf("%w: the lease may be over, so this broker pauses", store.ErrUnavailable)

// renew renews the lease until the term is over or the store is closed. It goes on for a while after the lease may be over:
// an etcd whose members were all away has extended it when it is back.
func (s *Store) renew(t *term, patience time.Duration) {
	again := time.NewTimer(t.ttl / renewals)
	defer again.Stop()
	for {
		select {
		case <-s.ctx.Done():
			t.end(fmt.Errorf("%w: closed", store.ErrUnavailable))
			return
		case <-t.over:
			return
		case <-again.C:
		}
		asked := time.Now()
		err := s.renewOnce(t)
		switch {
		case err == nil:
			t.renewed(asked)
			again.Reset(time.Until(asked.Add(t.ttl / renewals)))
			continue
		case errors.Is(err, store.ErrOvertaken):
			t.end(err)
		case t.late() > patience:
			t.end(fmt.Errorf("%w: the lease could not be renewed: %w", store.ErrUnavailable, err))
		}
		again.Reset(t.ttl / renewals / 10)
	}
}

// renewOnce asks once, and first whether the key is the term's still: an administrator may have removed it. That is also how
// the client gets a new token.
func (s *Store) renewOnce(t *term) error {
	ctx, cancel := context.WithTimeout(s.ctx, t.ttl/renewals)
	defer cancel()
	have, err := s.client.Get(ctx, s.prefix+store.ActingKey)
	if err != nil {
		return err
	}
	if len(have.Kvs) == 0 || have.Kvs[0].CreateRevision != t.created {
		return fmt.Errorf("%w: %s acts now", store.ErrOvertaken, holderOf(have.Kvs))
	}
	return s.keepAlive(ctx, t.lease)
}

// keepAlive renews a lease once. The client's own KeepAliveOnce tries again without a rest where nothing listens.
func (s *Store) keepAlive(ctx context.Context, lease clientv3.LeaseID) error {
	ctx, cancel := s.request(ctx)
	defer cancel()
	stream, err := clientv3.RetryLeaseClient(s.client.Client).LeaseKeepAlive(ctx, grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: int64(lease)}); err != nil {
		return err
	}
	answer, err := stream.Recv()
	if err == nil && answer.TTL <= 0 {
		err = fmt.Errorf("%w: the lease is over", store.ErrOvertaken)
	}
	return err
}

// renewals are tried in each duration of the lease.
const renewals = 3

// late is since when the broker pauses.
func (t *term) late() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return time.Since(t.until)
}

// Lost is closed when the leadership is lost, also by Close; nil, which never
// is, without one.
func (s *Store) Lost() <-chan struct{} {
	if t := s.term.Load(); t != nil {
		return t.over
	}
	return nil
}

// MayAct is nil while no other broker can act: the lease lasts by this host's clock, or there is none.
func (s *Store) MayAct() error {
	if t := s.term.Load(); t != nil {
		return t.err()
	}
	return nil
}

// Hold returns a context that ends when this broker may not act any more, for what others see.
func (s *Store) Hold(ctx context.Context) (context.Context, context.CancelFunc, error) {
	if t := s.term.Load(); t != nil {
		return t.hold(ctx)
	}
	ctx, cancel := context.WithCancel(ctx)
	return ctx, cancel, nil
}

// fence is the condition of every commit by a leader.
func (s *Store) fence() (clientv3.Cmp, bool) {
	t := s.term.Load()
	if t == nil {
		return clientv3.Cmp{}, false
	}
	return clientv3.Compare(clientv3.CreateRevision(s.prefix+store.ActingKey), "=", t.created), true
}

// overtaken reports whether a commit was refused because another broker acts or may act. The transaction's else branch
// reads the key last.
func (s *Store) overtaken(resp *clientv3.TxnResponse) error {
	t := s.term.Load()
	var have []*mvccpb.KeyValue
	if last := len(resp.Responses) - 1; last >= 0 {
		have = resp.Responses[last].GetResponseRange().GetKvs()
	}
	if len(have) > 0 && have[0].CreateRevision == t.created {
		return nil
	}
	err := fmt.Errorf("commit: %w: %s acts now", store.ErrOvertaken, holderOf(have))
	t.end(err)
	return err
}

// resign revokes the lease and with it the key, so that the next broker need not wait.
func (s *Store) resign() {
	t := s.term.Load()
	if t == nil || t.err() != nil {
		return
	}
	t.end(fmt.Errorf("%w: closed", store.ErrUnavailable))
	ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
	defer cancel()
	if _, err := s.client.Revoke(ctx, t.lease); err != nil {
		s.log.Warn("lease not released, the next broker has to wait", "error", err)
	}
}
