// SPDX-License-Identifier: Apache-2.0

package etcdstore_test

import (
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store/etcdstore"
	"github.com/kernelbroker/kernelbroker/tests/support/etcdtest"
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

// A broker cut off from etcd does nothing more by its own clock before another one may take over.
func TestCutOffLeaderIsReplaced(t *testing.T) {
	endpoint := embedded(t, t.TempDir())
	p := newProxy(t, endpoint)
	first, second := openCluster(t, p.endpoint(), "a", time.Second), openCluster(t, endpoint, "a", 0)
	closing(t, first)
	closing(t, second)
	if err := first.Lead(t.Context(), claim("one", "here")); err != nil {
		t.Fatal(err)
	}
	held, release, err := first.Hold(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	p.mute.Store(true)
	p.cut()
	if err := second.Lead(t.Context(), claim("two", "there")); err != nil {
		t.Fatal(err)
	}
	if err := first.MayAct(); err == nil || held.Err() == nil {
		t.Errorf("two act: %v, %v", err, held.Err())
	}
	if first.Epoch() >= second.Epoch() {
		t.Errorf("epoch %d follows %d", second.Epoch(), first.Epoch())
	}
	<-first.Lost()
	p.mute.Store(false)
	if _, err := first.Commit(t.Context(), store.Write{Key: "k", Value: []byte("1"), Expect: store.AnyRevision}); err == nil {
		t.Error("one that is cut off writes")
	}
}

// etcd, back, has the lease still: the broker that acted acts again, and has lost nothing.
func TestLeaderOutlastsEtcd(t *testing.T) {
	server := etcdtest.Start(t, etcdtest.Options{})
	s := openCluster(t, server.Endpoint, "a", time.Second)
	closing(t, s)
	c := claim("one", "here")
	c.Patience = time.Minute
	if err := s.Lead(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	epoch := s.Epoch()
	server.Kill()
	for s.MayAct() == nil {
		time.Sleep(10 * time.Millisecond)
	}
	server.Restart()
	for s.MayAct() != nil {
		select {
		case <-s.Lost():
			t.Fatal(s.MayAct())
		case <-time.After(10 * time.Millisecond):
		}
	}
	commit(t, s, put("k", "v", 0))
	if s.Epoch() != epoch {
		t.Errorf("epoch %d became %d", epoch, s.Epoch())
	}
}

// A broker that lost its lease waits in line, and leads again in an epoch of its own.
func TestLeadsAgain(t *testing.T) {
	endpoint := embedded(t, t.TempDir())
	one, other := openCluster(t, endpoint, "a", 0), openCluster(t, endpoint, "a", 0)
	closing(t, one)
	for _, s := range []*etcdstore.Store{one, other} {
		if err := s.Lead(t.Context(), claim("one", "here")); err != nil {
			t.Fatal(err)
		}
	}
	_, err := one.Commit(t.Context(), put("k", "old", 0))
	wantError(t, err, store.ErrOvertaken)
	<-one.Lost()
	waits := make(chan string, 1)
	c := claim("two", "there")
	c.Waits = func(holder string) { waits <- holder }
	leads := make(chan error, 1)
	go func() { leads <- one.Lead(t.Context(), c) }()
	if holder := <-waits; holder != "one" {
		t.Errorf("waits for %q", holder)
	}
	before := other.Epoch()
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-leads; err != nil {
		t.Fatal(err)
	}
	commit(t, one, put("k", "new", 0))
	if one.Epoch() <= before || one.MayAct() != nil {
		t.Errorf("epoch %d follows %d, %v", one.Epoch(), before, one.MayAct())
	}
}

// Each term has a larger number than those before, whatever the host's clock says, and also without a lease.
func TestEpochs(t *testing.T) {
	endpoint := embedded(t, t.TempDir())
	s := openCluster(t, endpoint, "a", 0)
	closing(t, s)
	future := uint64(time.Now().Add(time.Hour).UnixMilli())
	commit(t, s, put(store.EpochKey, strconv.FormatUint(future, 10), 0))
	for i := range uint64(3) {
		if err := s.Begin(t.Context()); err != nil || s.Epoch() != future+i+1 {
			t.Errorf("epoch %d, %v, want %d", s.Epoch(), err, future+i+1)
		}
	}
	if err := s.Lead(t.Context(), claim("one", "here")); err != nil || s.Epoch() != future+4 {
		t.Errorf("with a lease: %d, %v", s.Epoch(), err)
	}
	commit(t, s, put(store.EpochKey, "x", store.AnyRevision))
	other := openCluster(t, endpoint, "a", 0)
	closing(t, other)
	for _, err := range []error{other.Begin(t.Context()), other.Lead(t.Context(), claim("one", "here"))} {
		if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), `"epoch"`) {
			t.Errorf("damaged: %v", err)
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
