// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"sync"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// polls shares polls of slurmctld among callers. Each gets the first poll that
// began after its call, so that no answer is older than the question: internal/cache
// could return an older one. At most one poll runs and one waits.
type polls struct {
	view func(ctx context.Context, comments bool) (kb.SlurmView, error)

	mu         sync.Mutex
	under, due *poll // the one under way, and the next
}

// poll is one for all who asked before it began.
type poll struct {
	comments bool // somebody asked for them
	askers   int
	cancel   context.CancelFunc
	end      chan struct{}
	view     kb.SlurmView
	err      error
}

// take returns the next look. Others have it too: it is not to be changed.
func (l *polls) take(ctx context.Context, comments bool) (kb.SlurmView, error) {
	l.mu.Lock()
	if l.due == nil {
		l.due = &poll{end: make(chan struct{})}
	}
	k := l.due
	k.comments = k.comments || comments
	k.askers++
	l.beginLocked()
	l.mu.Unlock()
	select {
	case <-k.end:
		return k.view, k.err
	case <-ctx.Done():
		l.leave(k)
		return kb.SlurmView{}, fmt.Errorf("poll of slurmctld cancelled: %w", ctx.Err())
	}
}

func (l *polls) beginLocked() {
	if l.under != nil || l.due == nil {
		return
	}
	k := l.due
	l.under, l.due = k, nil
	// It is nobody's own: it goes on as long as one who asked is there.
	ctx, cancel := context.WithCancel(context.Background())
	k.cancel = cancel
	go func() {
		defer cancel()
		k.view, k.err = l.view(ctx, k.comments)
		close(k.end)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.under = nil
		l.beginLocked()
	}()
}

// leave gives up one asker's part in a look. One that nobody awaits any more is
// ended, or does not begin.
func (l *polls) leave(k *poll) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch k.askers--; {
	case k.askers > 0:
	case l.due == k:
		l.due = nil
	default:
		k.cancel()
	}
}
