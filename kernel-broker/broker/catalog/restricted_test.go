// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// A restricted profile is marked like a quarantined one, so that a submit host asks the broker; changes of restrictions
// are published at once.
func TestRestrictedInTheSnapshot(t *testing.T) {
	c, _ := newCatalog(t)
	var closed atomic.Bool
	c.o.Restricted = func(profile string) bool { return profile == "mitgcm" && closed.Load() }
	apply(t, c, "a", profile("stock", 1))
	apply(t, c, "b", profile("mitgcm", 1))
	texts := make(chan string, 16)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Publish(ctx, func(text string) error { texts <- text; return nil }) }()
	wait := func(line string) {
		t.Helper()
		for deadline := time.After(time.Minute); ; {
			select {
			case text := <-texts:
				if strings.Contains(text, line) && strings.Contains(text, "profile stock 1 1 available") {
					return
				}
			case <-deadline:
				t.Fatalf("no snapshot with %q", line)
			}
		}
	}
	wait("profile mitgcm 1 1 available")
	closed.Store(true)
	c.Republish()
	wait("profile mitgcm 1 1 quarantined")
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("Publish = %v", err)
	}
}
