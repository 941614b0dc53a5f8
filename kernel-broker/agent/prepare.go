// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// preparePause is the interval between checks whether the node is idle.
const preparePause = 3 * time.Second

// PrepareWhenIdle calls prepare once in a boot, when the node is on stock, its
// slurmd runs and no switch is under way. On another kernel a job has the node.
func (a *Agent) PrepareWhenIdle(ctx context.Context, prepare func(context.Context) error) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(preparePause):
		}
		s := a.Status()
		switch {
		case s.Attested && s.Profile != kb.StockProfile:
			return
		case !s.Attested || !s.SlurmdRunning || len(s.Jobs) > 0 || s.SwitchTo != "":
			continue
		}
		if err := prepare(ctx); err != nil && !errors.Is(err, context.Canceled) {
			a.parts.Log.Warn("no copy of the last kernel is kept ready", "error", err)
		}
		return
	}
}
