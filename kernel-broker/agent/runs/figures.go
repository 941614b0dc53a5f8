// SPDX-License-Identifier: Apache-2.0

package runs

import (
	"context"
	"sync"
)

// figures forwards the job's live figures to the broker while a client watches.
type figures struct {
	r       *run
	session Session
	cancel  context.CancelFunc
	ended   sync.WaitGroup
}

func (f *figures) set(watched bool) {
	if !watched {
		f.stop()
	}
	if !watched || f.cancel != nil {
		return
	}
	ctx, cancel := context.WithCancel(f.r.k.ctx)
	f.cancel = cancel
	f.ended.Go(func() {
		f.session.Watch(ctx, func(line []byte) {
			send, cancel := context.WithTimeout(ctx, reportLimit)
			defer cancel()
			if err := f.r.k.o.Broker.ReportRun(send, f.r.id, "", "", line); err != nil {
				f.r.log.Debug("figures not passed on", "error", err)
			}
		})
	})
}

func (f *figures) stop() {
	if f.cancel != nil {
		f.cancel()
		f.ended.Wait()
		f.cancel = nil
	}
}
