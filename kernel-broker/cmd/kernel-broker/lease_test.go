// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"testing"
)

// A broker that ends gives its lease up, and does not say that it was overtaken.
func TestLeaseGivenUp(t *testing.T) {
	lost := make(chan struct{})
	close(lost)
	for _, ending := range []bool{false, true} {
		ctx, end := context.WithCancelCause(t.Context())
		if ending {
			end(nil)
		}
		var log bytes.Buffer
		endWhenLost(ctx, lost, slog.New(slog.NewTextHandler(&log, nil)), end)
		if overtaken := errors.Is(context.Cause(ctx), errOvertaken); overtaken == ending || (log.Len() > 0) == ending {
			t.Errorf("ending %v: cause %v, it says %q", ending, context.Cause(ctx), log.String())
		}
	}
}
