// SPDX-License-Identifier: Apache-2.0

package etcdstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
)

func testContextEnds(t *testing.T, s store.Store) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, getErr := s.Get(ctx, "a")
	_, _, listErr := s.List(ctx, "")
	_, rangeErr := s.Range(ctx, "a", "b", 1)
	_, commitErr := s.Commit(ctx, put("a", "1", 0))
	for _, err := range []error{getErr, listErr, rangeErr, commitErr} {
		wantError(t, err, store.ErrUnavailable)
		wantError(t, err, context.Canceled)
	}
}

func testClosed(t *testing.T, s store.Store) {
	wantError(t, s.Close(), nil)
	wantError(t, s.Close(), nil)
	_, getErr := s.Get(t.Context(), "a")
	_, _, listErr := s.List(t.Context(), "")
	_, rangeErr := s.Range(t.Context(), "a", "b", 1)
	_, commitErr := s.Commit(t.Context(), put("a", "1", 0))
	for _, err := range []error{getErr, listErr, rangeErr, commitErr} {
		wantError(t, err, store.ErrUnavailable)
	}
}

func testTwoFencedWriters(t *testing.T, s store.Store) {
	revision := commit(t, s, put("leader", "none", 0))
	for round := range 30 {
		var wins [2]int64
		parallel(t, len(wins), func(i int) error {
			at, err := s.Commit(t.Context(),
				put("leader", fmt.Sprint(i), revision), put(fmt.Sprintf("mark/%d/%d", round, i), "", 0))
			if errors.Is(err, store.ErrConflict) {
				return nil
			}
			wins[i] = at
			return err
		})
		if (wins[0] == 0) == (wins[1] == 0) {
			t.Fatalf("round %d: revisions %v, want exactly one winner", round, wins)
		}
		winner, loser := 0, 1
		if wins[1] != 0 {
			winner, loser = 1, 0
		}
		revision = wins[winner]
		wantRecord(t, s, "leader", fmt.Sprint(winner), revision)
		wantRecord(t, s, fmt.Sprintf("mark/%d/%d", round, winner), "", revision)
		wantAbsent(t, s, fmt.Sprintf("mark/%d/%d", round, loser))
	}
}

func testCounter(t *testing.T, s store.Store) {
	const writers, increments = 16, 12
	commit(t, s, put("counter", "0", 0))
	parallel(t, writers, func(int) error {
		for range increments {
			if err := add(t.Context(), s, 1, "counter"); err != nil {
				return err
			}
		}
		return nil
	})
	r, err := s.Get(t.Context(), "counter")
	if want := fmt.Sprint(writers * increments); err != nil || string(r.Value) != want {
		t.Fatalf("counter is %q, %v; want %s", r.Value, err, want)
	}
}

// testTransfers moves money between accounts: the sum must hold in every
// snapshot.
func testTransfers(t *testing.T, s store.Store) {
	const accounts, writers, transfers, start = 6, 8, 12, 100
	for i := range accounts {
		commit(t, s, put(account(i), fmt.Sprint(start), 0))
	}
	parallel(t, writers+1, func(i int) error {
		for range transfers {
			if i == writers {
				if err := checkSum(t.Context(), s, accounts*start); err != nil {
					return err
				}
				continue
			}
			from := rand.IntN(accounts)
			to := (from + 1 + rand.IntN(accounts-1)) % accounts
			if err := add(t.Context(), s, 1+rand.IntN(9), account(to), account(from)); err != nil {
				return err
			}
		}
		return nil
	})
	wantError(t, checkSum(t.Context(), s, accounts*start), nil)
}

func account(i int) string { return fmt.Sprintf("account/%d", i) }

func checkSum(ctx context.Context, s store.Store, want int) error {
	records, at, err := s.List(ctx, "account/")
	if err != nil {
		return err
	}
	sum := 0
	for _, r := range records {
		n, err := strconv.Atoi(string(r.Value))
		if err != nil {
			return err
		}
		sum += n
	}
	if sum != want {
		return fmt.Errorf("sum at revision %d is %d, want %d", at, sum, want)
	}
	return nil
}

// add increments the first key and decrements the others, by compare and swap.
func add(ctx context.Context, s store.Store, amount int, keys ...string) error {
	for {
		var writes []store.Write
		sign := 1
		for _, key := range keys {
			r, err := s.Get(ctx, key)
			if err != nil {
				return err
			}
			n, err := strconv.Atoi(string(r.Value))
			if err != nil {
				return err
			}
			writes = append(writes, put(key, fmt.Sprint(n+sign*amount), r.Revision))
			sign = -1
		}
		_, err := s.Commit(ctx, writes...)
		if !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
}

// parallel runs a function n times at once and fails on its first error.
func parallel(t *testing.T, n int, f func(i int) error) {
	t.Helper()
	errs := make([]error, n)
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() { errs[i] = f(i) })
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}
