// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"testing"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// Jobs beyond the quota of concurrent switches wait, are not held, and are switched
// when another job ends; a job that has its place keeps it.
func TestSwitchesAtOnce(t *testing.T) {
	f := newFixture(t)
	f.tuneOptions = func(o *Options) { o.Switches = 1 }
	f.start()
	f.attach("n1", kb.StockProfile, "", bootOne)
	f.attach("n2", kb.StockProfile, "", bootTwo)
	f.slurm.node("n1", "ALLOCATED+POWERING_UP", "")
	f.slurm.job(7, "CONFIGURING", "n1")
	if _, err := f.c.Ensure(t.Context(), request(7)); err != nil {
		t.Fatal(err)
	}
	other := request(8)
	other.Nodes = []string{"n2"}
	f.slurm.job(8, "CONFIGURING", "n2")
	_, err := f.c.Ensure(t.Context(), other)
	var later *kb.RetryableError
	if !errors.As(err, &later) || !errors.Is(err, kb.ErrExhausted) || later.Wait <= 0 {
		t.Fatalf("the second job: %v", err)
	}
	if f.slurm.seen("hold 8") != 0 {
		t.Errorf("it is held: %q", f.slurm.calls)
	}
	if _, err := f.c.Ensure(t.Context(), request(7)); err != nil {
		t.Errorf("the first job asks again: %v", err)
	}
	f.slurm.end(7)
	until(t, "room for the second job when the first has left", func() bool {
		_, err := f.c.Ensure(t.Context(), other)
		return err == nil
	})
}
