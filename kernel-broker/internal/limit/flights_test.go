// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

// Whoever asks the same shares the answer; who leaves takes it from nobody, and
// what nobody waits for is given up.
func TestFlights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var flights Flights[string, int]
		asked, given := map[string]int{}, 0
		answer := make(chan int)
		do := func(ctx context.Context, key string) chan error {
			done := make(chan error, 1)
			go func() {
				got, err := flights.Do(ctx, key, func(ctx context.Context) (int, error) {
					asked[key]++
					select {
					case n := <-answer:
						return n, nil
					case <-ctx.Done():
						given++
						return 0, ctx.Err()
					}
				})
				if err == nil && got != 7 {
					err = errors.New("another answer")
				}
				done <- err
			}()
			synctest.Wait()
			return done
		}
		first, leaveFirst := context.WithCancelCause(t.Context())
		second, leaveSecond := context.WithCancelCause(t.Context())
		gone := errors.New("gone")
		defer leaveSecond(gone)
		one, two, three := do(first, "alice"), do(t.Context(), "alice"), do(t.Context(), "alice")
		if leaveFirst(gone); !errors.Is(<-one, gone) || asked["alice"] != 1 || given != 0 {
			t.Errorf("asked %v, and %d questions were given up when the first of three left", asked, given)
		}
		answer <- 7
		if err := errors.Join(<-two, <-three); err != nil {
			t.Error(err)
		}
		// An answer is nobody's who comes after it, nor is it one that was given up.
		one = do(second, "alice")
		bob := do(t.Context(), "bob")
		leaveSecond(gone)
		synctest.Wait()
		if err := <-one; !errors.Is(err, gone) || given != 1 {
			t.Errorf("%v; %d questions were given up when nobody was left", err, given)
		}
		three = do(t.Context(), "alice")
		answer <- 7
		answer <- 7
		if err := errors.Join(<-bob, <-three); err != nil || asked["alice"] != 3 || asked["bob"] != 1 {
			t.Errorf("asked %v, %v", asked, err)
		}
		if len(flights.of) != 0 {
			t.Errorf("left behind: %v", flights.of)
		}
	})
}
