// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/decide"
)

// slurmdDied takes in that slurmd ended by itself, and says what follows.
func (a *Agent) slurmdDied(now time.Time) {
	a.observed.Deaths = decide.Died(a.observed.Deaths, now)
	times := len(a.observed.Deaths)
	if times < decide.MaxDeaths {
		a.slurmdCause = fmt.Sprintf("slurmd ended by itself, %d of at most %d times; the agent starts it again", times, decide.MaxDeaths)
		a.parts.Log.Warn("slurmd ended by itself", "node", a.parts.Node, "times", times, "limit", decide.MaxDeaths)
		return
	}
	a.slurmdCause = fmt.Sprintf("slurmd ended by itself %d times within %d minutes and is not started again: read its log, mend it, start slurmd",
		times, int(decide.DeathWindow.Minutes()))
	a.parts.Log.Error("slurmd is not started again", "node", a.parts.Node, "reason", a.slurmdCause)
}
