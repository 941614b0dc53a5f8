// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"log/slog"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/local"
)

// Copies are made only on an idle node that is proven to run stock.
func TestPrepareWhenIdle(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status local.NodeStatus
		made   int
	}{
		"idle":            {local.NodeStatus{Attested: true, Profile: "stock", SlurmdRunning: true}, 1},
		"another kernel":  {local.NodeStatus{Attested: true, Profile: "mitgcm", SlurmdRunning: true}, 0},
		"not proven":      {local.NodeStatus{Profile: "stock", SlurmdRunning: true}, 0},
		"it is to switch": {local.NodeStatus{Attested: true, Profile: "stock", SlurmdRunning: true, SwitchTo: "mitgcm@1"}, 0},
		"a job has it":    {local.NodeStatus{Attested: true, Profile: "stock", SlurmdRunning: true, Jobs: []uint32{7}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := &Agent{parts: Parts{Log: slog.New(slog.DiscardHandler)}, status: c.status}
			ctx, cancel := context.WithTimeout(t.Context(), 2*preparePause-preparePause/2)
			defer cancel()
			made := 0
			a.PrepareWhenIdle(ctx, func(context.Context) error {
				made++
				return nil
			})
			if made != c.made {
				t.Errorf("prepared %d times", made)
			}
		})
	}
}
