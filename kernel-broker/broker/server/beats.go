// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/controller"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/silence"
)

// longestHold is how long a stream waits for its turn. Agents that come at once and
// have to wait longer are told when to come back: each one that waits here takes memory.
const longestHold = 5 * time.Second

// turn waits until a node may attach, or refuses it for now.
func (s *nodeService) turn(ctx context.Context, node string) error {
	for {
		wait := s.nodes.Turn(node)
		switch {
		case wait == 0:
			return nil
		case wait > longestHold:
			return &kb.RetryableError{Wait: wait, Err: fmt.Errorf("many agents connect at once, node %q may connect in %v: %w", node, wait.Round(time.Second), kb.ErrExhausted)}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}

// beats are the heartbeats of one stream.
type beats struct {
	watch *silence.Watch
	came  chan struct{} // a heartbeat is to be answered
	// The interval that the agent keeps, and the one that it was told.
	kept, told atomic.Int64
}

func newBeats() *beats {
	b := &beats{came: make(chan struct{}, 1)}
	b.watch = silence.New(b.limit)
	return b
}

// heard takes in the heartbeat of an agent that keeps an interval.
func (b *beats) heard(every time.Duration) {
	b.kept.Store(int64(min(max(every, 0), controller.MaxHeartbeat)))
	select {
	case b.came <- struct{}{}:
	default:
	}
}

// answer says how often to send one.
func (b *beats) answer(r controller.Rhythm) *api.ConnectResponse {
	b.told.Store(int64(r.Every))
	return &api.ConnectResponse{Message: &api.ConnectResponse_Heartbeat{Heartbeat: &api.Heartbeat{
		Every: durationpb.New(r.Every), Spread: durationpb.New(r.Spread)}}}
}

// limit is how long the agent may be silent. The longer interval counts: an agent may
// not have heard of a new one yet.
func (b *beats) limit() time.Duration {
	return controller.Rhythm{Every: max(controller.MinHeartbeat, time.Duration(b.kept.Load()), time.Duration(b.told.Load()))}.Silence()
}
