// SPDX-License-Identifier: Apache-2.0

package runs

import (
	"bufio"
	"bytes"
	"context"
	"net"
	"path/filepath"
	"strconv"
	"sync"
)

// mostLine of figures; the lists in them are short.
const mostLine = 1 << 20

// figures forwards the job's live figures to the broker while a client watches. It listens at the socket like any user
// of the job: without a listener the collectors produce none.
type figures struct {
	r      *run
	job    uint32
	cancel context.CancelFunc
	ended  sync.WaitGroup
}

func (f *figures) set(watched bool) {
	if !watched || f.r.k.o.Sockets == "" {
		f.stop()
		return
	}
	if f.cancel != nil {
		return
	}
	ctx, cancel := context.WithCancel(f.r.k.ctx)
	f.cancel = cancel
	f.ended.Go(func() { f.pass(ctx) })
}

func (f *figures) stop() {
	if f.cancel != nil {
		f.cancel()
		f.ended.Wait()
		f.cancel = nil
	}
}

func (f *figures) pass(ctx context.Context) {
	path := filepath.Join(f.r.k.o.Sockets, strconv.FormatUint(uint64(f.job), 10)+".sock")
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if err != nil {
		f.r.log.Warn("no live figures", "error", err)
		return
	}
	unhook := context.AfterFunc(ctx, func() { _ = conn.Close() }) // ends the reading
	defer func() {
		if unhook() {
			_ = conn.Close() // only read from
		}
	}()
	lines := bufio.NewScanner(conn)
	lines.Buffer(nil, mostLine)
	for lines.Scan() {
		send, cancel := context.WithTimeout(ctx, reportLimit)
		err := f.r.k.o.Broker.ReportRun(send, f.r.id, "", "", bytes.Clone(lines.Bytes()))
		cancel()
		if err != nil {
			f.r.log.Debug("figures not passed on", "error", err)
		}
	}
	if err := lines.Err(); err != nil && ctx.Err() == nil {
		f.r.log.Warn("live figures broke off", "error", err)
	}
}
