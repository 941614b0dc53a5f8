// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/controller"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/history"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
)

// openHistory reads which events the store has. Everything that writes records commits through it.
func openHistory(ctx context.Context, c config, log *slog.Logger, kept store.Store, clock *controller.Clock) (*history.Journal, error) {
	return history.Open(ctx, history.Options{Store: kept, Keep: c.Events.Keep, MaxBytes: c.Events.MaxBytes, Now: clock.Now, Log: log})
}

// historyHealth says how much is kept.
func historyHealth(events *history.Journal) func() (string, error) {
	return func() (string, error) {
		oldest, next, bytes := events.Stats()
		return fmt.Sprintf("%d events in %d KiB", next-oldest, bytes>>10), nil
	}
}
