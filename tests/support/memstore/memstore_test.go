// SPDX-License-Identifier: Apache-2.0

package memstore_test

import (
	"errors"
	"testing"

	"go.uber.org/goleak"

	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
	"github.com/kernelbroker/kernelbroker/tests/support/memstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestFailCommits(t *testing.T) {
	s := memstore.New()
	s.FailCommits(1, memstore.Before)
	s.FailCommits(2, memstore.After)
	write := store.Write{Key: "a", Value: []byte("1")}

	if _, err := s.Commit(t.Context(), write); !errors.Is(err, store.ErrUnavailable) {
		t.Fatalf("first commit = %v", err)
	}
	if _, err := s.Get(t.Context(), "a"); !errors.Is(err, store.ErrNotFound) {
		t.Fatalf("a fault before: Get = %v, want ErrNotFound", err)
	}
	if _, err := s.Commit(t.Context(), write); !errors.Is(err, store.ErrUnavailable) {
		t.Fatalf("second commit = %v", err)
	}
	r, err := s.Get(t.Context(), "a")
	if err != nil || string(r.Value) != "1" {
		t.Fatalf("a fault after: Get = %q, %v, want it applied", r.Value, err)
	}
	// A conflict takes precedence over the fault and does not consume it.
	if _, err := s.Commit(t.Context(), write); !errors.Is(err, store.ErrConflict) {
		t.Fatalf("repeated commit = %v, want a conflict", err)
	}
	write.Expect = r.Revision
	if _, err := s.Commit(t.Context(), write); !errors.Is(err, store.ErrUnavailable) {
		t.Fatalf("third fault = %v", err)
	}
	write.Expect = store.AnyRevision
	if _, err := s.Commit(t.Context(), write); err != nil {
		t.Fatalf("no faults are left, Commit = %v", err)
	}
}

func TestFailReads(t *testing.T) {
	s := memstore.New()
	s.FailReads(2)
	_, getErr := s.Get(t.Context(), "a")
	_, _, listErr := s.List(t.Context(), "")
	if !errors.Is(getErr, store.ErrUnavailable) || !errors.Is(listErr, store.ErrUnavailable) {
		t.Errorf("Get = %v, List = %v", getErr, listErr)
	}
	if _, _, err := s.List(t.Context(), ""); err != nil {
		t.Errorf("no faults are left, List = %v", err)
	}
}
