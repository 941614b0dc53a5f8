// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"encoding/json"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
)

// liveList limits the entries of a list in a line of figures.
const liveList = 20

// publish sends a line to the listeners. Without a listener it reads nothing and costs nothing.
func (r *Run) publish(last bool) {
	if !r.server.HasClients() {
		return
	}
	now := r.result
	if !last {
		var err error
		if now, err = r.snapshot(); err != nil {
			r.log.Warn("live figures not whole", "error", err)
		}
	}
	line, err := json.Marshal(profiling.Live{
		Format: profiling.Format, At: time.Now().UTC(), Ended: last, Result: Short(now, liveList),
	})
	if err != nil {
		r.log.Error("live figures", "error", err)
		return
	}
	r.server.Publish(append(line, '\n'))
}
