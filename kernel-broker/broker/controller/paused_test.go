// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"testing"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// A broker that may not act decides nothing and tells agents nothing, not even that it is there: they try the next one.
func TestPausedBrokerDecidesNothing(t *testing.T) {
	f, _ := bare(t)
	paused := errors.New("another broker may act")
	f.c.o.MayAct = func() error { return paused }
	s, err := f.c.Attach("n1", kb.Boot{BootID: bootOne}, kb.Inventory{}, false)
	if err != nil {
		t.Fatal(err)
	}
	s.Heartbeat(1)
	if err := f.c.pass(t.Context()); !errors.Is(err, paused) {
		t.Errorf("a pass: %v", err)
	}
	if records, _, err := f.store.List(t.Context(), nodePrefix); err != nil || len(records) != 0 || len(s.Messages()) != 0 {
		t.Errorf("%d records, %d messages, %v", len(records), len(s.Messages()), err)
	}
	f.c.o.MayAct = func() error { return nil }
	s.Heartbeat(2)
	if err := f.c.pass(t.Context()); err != nil {
		t.Fatal(err)
	}
	if desired := <-s.Messages(); desired.Desired == nil {
		t.Errorf("%+v", desired)
	}
	for beat := range s.Messages() {
		if beat.Heartbeat == 1 {
			t.Error("a heartbeat of the pause is answered")
		}
		if beat.Heartbeat == 2 {
			break
		}
	}
}
