// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

// ErrDown means that the lab is not up (any more).
var ErrDown = errors.New("the lab is not up")

// ErrTimeout means that a condition did not become true in time.
var ErrTimeout = errors.New("not in time")

// Wait polls a condition until it is true, it fails, the limit passes or the context ends. The error names the
// condition.
func Wait(ctx context.Context, limit time.Duration, what string, done func() (bool, error)) error {
	return waitFor(ctx, limit, 100*time.Millisecond, what, done)
}

func waitFor(ctx context.Context, limit, every time.Duration, what string, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("%w: %v", ErrTimeout, limit))
	defer cancel()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		ok, err := done()
		if err != nil {
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			return fmt.Errorf("wait for %s: %w", what, err)
		}
		if ok {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", what, context.Cause(ctx))
		case <-tick.C:
		}
	}
}

// tail returns a file's last lines, for error messages.
func tail(path string, lines int) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimRight(strings.ReplaceAll(string(text), "\r", ""), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
