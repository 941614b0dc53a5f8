package main

import (
	"context"
	"errors"
	"time"
)

// takeOver is how long a broker waits for the one before it to end.
const takeOver = 5 * time.Second

// afterAnother opens what one broker at a time has. It waits a little for a broker
// that is about to end, or for the last child of one that was killed: until its
// exec it holds all that the broker held.
func afterAnother[T any](ctx context.Context, patience time.Duration, inUse error, open func() (T, error)) (T, error) {
	for end := time.Now().Add(patience); ; {
		opened, err := open()
		if !errors.Is(err, inUse) || time.Now().After(end) {
			return opened, err
		}
		select {
		case <-ctx.Done():
			return opened, err
		case <-time.After(20 * time.Millisecond):
		}
	}
}
