// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store/etcdserver"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store/etcdstore"
)

// opened is a store in an etcd of the test's own, and what opens another one there.
func opened(t *testing.T) (open func() *etcdstore.Store) {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	etcd, err := etcdserver.Start(t.Context(), etcdserver.Config{Dir: t.TempDir(), Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := etcd.Close(); err != nil {
			t.Error(err)
		}
	})
	return func() *etcdstore.Store {
		t.Helper()
		kept, err := etcdstore.Open(t.Context(), etcdstore.Config{Endpoints: []string{etcd.Endpoint()}, Cluster: "a", Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := kept.Close(); err != nil {
				t.Error(err)
			}
		})
		return kept
	}
}

// A broker that loses its lease stops, waits until no other one acts, and begins again with nothing of before. One that ends
// for another reason ends.
func TestTermsFollowEachOther(t *testing.T) {
	open := opened(t)
	kept, other := open(), open()
	waits := make(chan string, 1)
	l := line{kept: kept, log: slog.New(slog.DiscardHandler), claim: &etcdstore.Claim{Holder: "one", Place: "here", Waits: func(holder string) {
		waits <- holder
		if err := other.Close(); err != nil {
			t.Error(err)
		}
	}}}
	broken := errors.New("broken")
	var epochs []uint64
	err := l.terms(t.Context(), func(ctx context.Context) error {
		if epochs = append(epochs, kept.Epoch()); len(epochs) == 2 {
			return broken
		}
		// Who has the place takes the lease of its dead holder.
		if err := other.Lead(t.Context(), etcdstore.Claim{Holder: "two", Place: "here"}); err != nil {
			t.Error(err)
		}
		l.claim.Place = "there"
		<-ctx.Done()
		if cause := context.Cause(ctx); !errors.Is(cause, errLost) {
			t.Errorf("it stopped since %v", cause)
		}
		return errors.New("what stops with it")
	})
	if !errors.Is(err, broken) || len(epochs) != 2 || epochs[0] >= epochs[1] {
		t.Errorf("epochs %d, %v", epochs, err)
	}
	if holder := <-waits; holder != "two" {
		t.Errorf("it waited for %q", holder)
	}
}

// Health says who acts, and who waits for that, and no more once it waits no more.
func TestActingHealth(t *testing.T) {
	open := opened(t)
	kept, other := open(), open()
	c := defaults()
	if err := kept.Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	if text, err := c.actingHealth(t.Context(), kept); err != nil || !strings.Contains(text, "this broker, in epoch ") {
		t.Errorf("alone: %q, %v", text, err)
	}
	c.Etcd.Endpoints = []string{"external"}
	if err := kept.Lead(t.Context(), etcdstore.Claim{Holder: "ctl1 pid 1", Place: "here"}); err != nil {
		t.Fatal(err)
	}
	says := func(words string) {
		t.Helper()
		for text := ""; !strings.HasPrefix(text, "ctl1 pid 1, in epoch ") || !strings.HasSuffix(text, words); {
			var err error
			if text, err = c.actingHealth(t.Context(), kept); err != nil {
				t.Fatal(err)
			}
		}
	}
	says("; no other broker waits")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- other.Lead(ctx, etcdstore.Claim{Holder: "x", Waiter: "ctl2 pid 2, which waits", Place: "there"})
	}()
	says("; behind it: ctl2 pid 2, which waits")
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	says("; no other broker waits")
	if err := kept.Close(); err != nil {
		t.Fatal(err)
	}
	if text, err := c.actingHealth(t.Context(), kept); err == nil || !strings.Contains(err.Error(), "pauses") {
		t.Errorf("closed: %q, %v", text, err)
	}
}

// A broker with a store of its own acts at once, in an epoch of its own, and is never overtaken.
func TestTermWithoutALine(t *testing.T) {
	kept := opened(t)()
	err := line{kept: kept}.terms(t.Context(), func(context.Context) error {
		if kept.Epoch() == 0 || kept.MayAct() != nil {
			t.Errorf("epoch %d, %v", kept.Epoch(), kept.MayAct())
		}
		return store.ErrFull
	})
	if !errors.Is(err, store.ErrFull) {
		t.Error(err)
	}
}
