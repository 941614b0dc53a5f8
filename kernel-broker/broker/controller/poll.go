// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"sync"

	"golang.org/x/sync/semaphore"
	"golang.org/x/sync/singleflight"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// polls shares polls of slurmctld among callers. Each gets the first poll that
// began after its call, so that no answer is older than the question: internal/cache
// could return an older one. At most one poll runs and one waits.
type polls struct {
	view func(ctx context.Context, comments bool) (kb.SlurmView, error)
	turn *semaphore.Weighted

	mu       sync.Mutex
	next     singleflight.Group // the poll that has not begun
	comments bool               // somebody who waits for it asked for them
}

func newPolls(view func(ctx context.Context, comments bool) (kb.SlurmView, error)) *polls {
	return &polls{view: view, turn: semaphore.NewWeighted(1)}
}

// take returns the next poll. Others have it too: it is not to be changed.
func (p *polls) take(ctx context.Context, comments bool) (kb.SlurmView, error) {
	select {
	case result := <-p.join(comments):
		view, _ := result.Val.(kb.SlurmView)
		return view, result.Err
	case <-ctx.Done():
		return kb.SlurmView{}, fmt.Errorf("poll of slurmctld cancelled: %w", ctx.Err())
	}
}

func (p *polls) join(comments bool) <-chan singleflight.Result {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.comments = p.comments || comments
	return p.next.DoChan("", func() (any, error) {
		// It is nobody's own, and has a time limit of its own.
		ctx := context.Background()
		if err := p.turn.Acquire(ctx, 1); err != nil {
			return nil, err
		}
		defer p.turn.Release(1)
		view, err := p.view(ctx, p.begin())
		view.Index()
		return view, err
	})
}

// begin has those who ask from now on wait for another poll.
func (p *polls) begin() (comments bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next.Forget("")
	comments, p.comments = p.comments, false
	return comments
}
