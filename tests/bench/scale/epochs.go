// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/link"
)

// epochs are those of the brokers whose desired states came to agents. As a handler of the links' log it counts the messages
// that agents refused since they were an older broker's.
type epochs struct {
	mu     sync.Mutex
	newest uint64
	since  time.Time // when the first agent heard of it
	late   int       // of an older broker, taken or refused
}

// listener is a link that notes what its agent hears.
type listener struct {
	*link.Link
	m *machine
}

// Status implements agent.Link.
func (l listener) Status() link.Status {
	s := l.Link.Status()
	l.m.with(func() {
		if s.Desired != nil && s.Desired != l.m.heard.Desired {
			l.m.heard = s
			l.m.epochs.note(s.Epoch)
		}
	})
	return s
}

func (e *epochs) note(epoch uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case epoch > e.newest:
		e.newest, e.since = epoch, time.Now()
	case epoch < e.newest:
		e.late++
	}
}

func (e *epochs) now() (newest uint64, since time.Time, late int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.newest, e.since, e.late
}

// Enabled implements slog.Handler.
func (e *epochs) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }

// Handle implements slog.Handler.
func (e *epochs) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if strings.Contains(a.Value.String(), "is refused, another broker acts") {
			e.mu.Lock()
			e.late++
			e.mu.Unlock()
		}
		return true
	})
	return nil
}

// WithAttrs implements slog.Handler.
func (e *epochs) WithAttrs([]slog.Attr) slog.Handler { return e }

// WithGroup implements slog.Handler.
func (e *epochs) WithGroup(string) slog.Handler { return e }
