// SPDX-License-Identifier: Apache-2.0

package etcdstore

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
)

// A broker pauses by its own clock while the lease, counted from when it was asked for, still lasts, and acts again when it
// is renewed. What it had begun is broken off.
func TestTermPausesBeforeTheLeaseIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl = 3 * time.Second
		begun := time.Now()
		term := newTerm(7, 1, 1, begun, ttl)
		held, release, err := term.hold(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer release()
		time.Sleep(ttl - ttl/safety - time.Millisecond)
		synctest.Wait()
		if err := term.err(); err != nil || held.Err() != nil {
			t.Errorf("%v after its begin: %v, %v", time.Since(begun), err, held.Err())
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if err := term.err(); !errors.Is(err, store.ErrUnavailable) || held.Err() == nil {
			t.Errorf("%v after its begin: %v, %v", time.Since(begun), err, held.Err())
		}
		if _, _, err := term.hold(t.Context()); err == nil {
			t.Error("something begins in a pause")
		}
		// An answer that took long renews nothing.
		term.renewed(time.Now().Add(-ttl))
		if term.err() == nil {
			t.Error("renewed by an answer that is as old as the lease")
		}
		term.renewed(time.Now())
		again, release, err := term.hold(t.Context())
		if err != nil || again.Err() != nil || held.Err() == nil {
			t.Errorf("renewed: %v, %v, %v", err, again.Err(), held.Err())
		}
		defer release()
		select {
		case <-term.over:
			t.Error("a pause ends the term")
		default:
		}

		over := errors.New("another broker acts")
		term.end(over)
		term.end(errors.New("later"))
		term.renewed(time.Now())
		synctest.Wait()
		if err := term.err(); !errors.Is(err, over) || again.Err() == nil {
			t.Errorf("ended: %v, %v", err, again.Err())
		}
		<-term.over
	})
}

// A process that was stopped acts on nothing when it goes on, though no timer has told it yet.
func TestStoppedTermIsSeenWithoutATimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		term := newTerm(7, 1, 1, time.Now().Add(-time.Hour), time.Second)
		if _, _, err := term.hold(t.Context()); err == nil {
			t.Error("it acts an hour after its lease")
		}
	})
}
