// SPDX-License-Identifier: Apache-2.0

package etcdstore_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store/etcdstore"
)

const leaseTTL = 2 * time.Second

func claim(holder, place string) etcdstore.Claim {
	return etcdstore.Claim{Holder: holder, Place: place, TTL: leaseTTL}
}

// A second broker on the same etcd waits and learns the holder's name until the first ends and releases the lease.
func TestSecondLeaderWaits(t *testing.T) {
	endpoint := embedded(t, t.TempDir())
	first, second := openCluster(t, endpoint, "a", 0), openCluster(t, endpoint, "a", 0)
	if err := first.Lead(t.Context(), claim("one pid 1", "here")); err != nil {
		t.Fatal(err)
	}
	waits, leads := make(chan string, 9), make(chan error, 1)
	c := claim("two pid 2", "there")
	c.Waits = func(holder string) { waits <- holder }
	var tries atomic.Int64
	c.Alive = func() { tries.Add(1) }
	go func() { leads <- second.Lead(t.Context(), c) }()
	if holder := <-waits; holder != "one pid 1" {
		t.Errorf("waits for %q", holder)
	}
	select {
	case err := <-leads:
		t.Fatalf("two lead: %v", err)
	case <-time.After(2 * leaseTTL):
	}
	if tries.Load() < 2 {
		t.Errorf("%d signs of life in %v of waiting", tries.Load(), 2*leaseTTL)
	}
	if _, err := first.Commit(t.Context(), store.Write{Key: "k", Value: []byte("1")}); err != nil {
		t.Errorf("the first after two TTLs: %v", err)
	}
	begun := time.Now()
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-leads; err != nil || time.Since(begun) > leaseTTL {
		t.Errorf("after %v: %v", time.Since(begun), err)
	}
	if _, err := second.Commit(t.Context(), store.Write{Key: "k", Value: []byte("2"), Expect: store.AnyRevision}); err != nil {
		t.Error(err)
	}
	if err := second.Close(); err != nil {
		t.Error(err)
	}
}

// A broker that was killed and restarts at the same place does not wait for its own lease, and late writes of the dead
// one change nothing.
func TestSamePlaceTakesOver(t *testing.T) {
	endpoint := embedded(t, t.TempDir())
	old, young := openCluster(t, endpoint, "a", 0), openCluster(t, endpoint, "a", 0)
	for _, s := range []*etcdstore.Store{old, young} {
		begun := time.Now()
		if err := s.Lead(t.Context(), claim("one", "here")); err != nil || time.Since(begun) > leaseTTL/2 {
			t.Fatalf("after %v: %v", time.Since(begun), err)
		}
	}
	if _, err := young.Commit(t.Context(), store.Write{Key: "k", Value: []byte("young")}); err != nil {
		t.Fatal(err)
	}
	for _, expect := range []int64{store.AnyRevision, 0} {
		if _, err := old.Commit(t.Context(), store.Write{Key: "other", Value: []byte("old"), Expect: expect}); !errors.Is(err, store.ErrOvertaken) {
			t.Errorf("expecting %d: %v", expect, err)
		}
	}
	if _, err := young.Get(t.Context(), "other"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("commit succeeded: %v", err)
	}
	select {
	case <-old.Lost():
	default:
		t.Error("lost leadership not noticed")
	}
	// A conflict of the one that leads is a conflict.
	if _, err := young.Commit(t.Context(), store.Write{Key: "k", Value: []byte("x")}); !errors.Is(err, store.ErrConflict) {
		t.Error(err)
	}
	for _, s := range []*etcdstore.Store{old, young} {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A broker cut off from etcd for the TTL gives up by its own clock, and another one takes over.
func TestCutOffLeaderIsReplaced(t *testing.T) {
	endpoint := embedded(t, t.TempDir())
	p := newProxy(t, endpoint)
	first, second := openCluster(t, p.endpoint(), "a", time.Second), openCluster(t, endpoint, "a", 0)
	if err := first.Lead(t.Context(), claim("one", "here")); err != nil {
		t.Fatal(err)
	}
	p.mute.Store(true)
	p.cut()
	select {
	case <-first.Lost():
	case <-time.After(10 * leaseTTL):
		t.Fatal("it leads without etcd")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*leaseTTL)
	defer cancel()
	if err := second.Lead(ctx, claim("two", "there")); err != nil {
		t.Fatal(err)
	}
	p.mute.Store(false)
	if _, err := first.Commit(t.Context(), store.Write{Key: "k", Value: []byte("1"), Expect: store.AnyRevision}); err == nil {
		t.Error("one that is cut off writes")
	}
	for _, s := range []*etcdstore.Store{first, second} {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A broker that waits outlasts a time without etcd: nothing is lost by waiting on, and who restarts it only makes a busy
// host busier.
func TestWaitingOutlastsEtcd(t *testing.T) {
	endpoint := embedded(t, t.TempDir())
	p := newProxy(t, endpoint)
	first, second := openCluster(t, endpoint, "a", 0), openCluster(t, p.endpoint(), "a", 200*time.Millisecond)
	if err := first.Lead(t.Context(), claim("one", "here")); err != nil {
		t.Fatal(err)
	}
	waits, tries, leads := make(chan string, 9), make(chan bool), make(chan error, 1)
	c := claim("two", "there")
	c.Waits = func(holder string) { waits <- holder }
	c.Alive = func() { tries <- true }
	go func() {
		err := second.Lead(t.Context(), c)
		close(tries)
		leads <- err
	}()
	<-tries
	p.mute.Store(true)
	for range 4 {
		<-tries
	}
	select {
	case err := <-leads:
		t.Fatalf("without etcd: %v", err)
	default:
	}
	p.mute.Store(false)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	for range tries { //nolint:revive // until it leads
	}
	if err := <-leads; err != nil {
		t.Error(err)
	}
	if len(waits) != 1 {
		t.Errorf("%d holders were waited for, want one", len(waits))
	}
	if err := second.Close(); err != nil {
		t.Error(err)
	}
}

// Who does not want to wait hears who acts, and takes over from a dead process at his own place.
func TestTryLead(t *testing.T) {
	endpoint := embedded(t, t.TempDir())
	first, second := openCluster(t, endpoint, "a", 0), openCluster(t, endpoint, "a", 0)
	closing(t, first)
	closing(t, second)
	for _, c := range []struct {
		s             *etcdstore.Store
		place, holder string
	}{{first, "here", ""}, {second, "there", "a broker"}, {second, "here", ""}} {
		if holder, err := c.s.TryLead(t.Context(), claim("a broker", c.place)); err != nil || holder != c.holder {
			t.Errorf("%s: %q, %v", c.place, holder, err)
		}
	}
	_, err := first.Commit(t.Context(), put("k", "v", 0))
	wantError(t, err, store.ErrOvertaken)
	commit(t, second, put("k", "v", 0))
}

// Nobody waits for a broker that was never seen.
func TestLeadWithoutEtcd(t *testing.T) {
	p := newProxy(t, embedded(t, t.TempDir()))
	s := openCluster(t, p.endpoint(), "a", 200*time.Millisecond)
	p.mute.Store(true)
	if err := s.Lead(t.Context(), claim("one", "here")); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("leads without etcd: %v", err)
	}
	p.mute.Store(false)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
