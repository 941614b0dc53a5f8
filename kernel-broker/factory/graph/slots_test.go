// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"
)

func TestSlotsGoByPlace(t *testing.T) {
	s := &slots{free: 1}
	first, err := s.take(t.Context(), 9)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var order []int
	var waiting sync.WaitGroup
	for i, place := range []int{5, 3, 7, 1} {
		waiting.Go(func() {
			give, err := s.take(t.Context(), place)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			order = append(order, place)
			mu.Unlock()
			give()
		})
		until(t, "it waits", func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return len(s.waiting) == i+1
		})
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := s.take(ctx, 0); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("waiting ends with its context: %v", err)
	}
	first()
	waiting.Wait()
	if len(order) != 4 || order[0] != 1 || order[1] != 3 || order[2] != 5 || order[3] != 7 || s.free != 1 {
		t.Errorf("order %v, %d free", order, s.free)
	}
}
