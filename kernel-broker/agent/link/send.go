// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"fmt"

	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
)

// Send hands a message to the stream that is up. An error means that there is
// none: what is worth saying is said again on the next one.
func (l *Link) Send(ctx context.Context, message *api.ConnectRequest) error {
	return l.put(ctx, outgoing{message: message})
}

func (l *Link) put(ctx context.Context, item outgoing) error {
	l.mu.Lock()
	outbox := l.outbox
	l.mu.Unlock()
	if outbox == nil {
		return fmt.Errorf("broker %q: no stream: %w", l.options.Broker, kb.ErrUnavailable)
	}
	select {
	case outbox <- item:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("broker %q: %w", l.options.Broker, ctx.Err())
	}
}

// Flush returns when the broker has taken in everything that was sent before: it
// answers a heartbeat after it. What has only arrived may still be lost with the
// stream.
func (l *Link) Flush(ctx context.Context) error {
	l.mu.Lock()
	answers := l.answers
	l.mu.Unlock()
	if !answers {
		return l.arrived(ctx)
	}
	_, err := l.ask(ctx, func(number uint64) *api.ConnectRequest {
		return &api.ConnectRequest{Message: &api.ConnectRequest_Heartbeat{Heartbeat: &api.Heartbeat{Number: number}}}
	})
	return err
}

// arrived is for a broker of 0.1.0, which answers no heartbeats. A health check
// goes after the messages on the same connection: bytes arrive in order, and any
// answer to the check, even that there is no such service, shows that what came
// before it has arrived.
func (l *Link) arrived(ctx context.Context) error {
	passed := make(chan struct{})
	if err := l.put(ctx, outgoing{passed: passed}); err != nil {
		return err
	}
	select {
	case <-passed:
	case <-ctx.Done():
		return fmt.Errorf("broker %q: %w", l.options.Broker, ctx.Err())
	}
	_, err := healthpb.NewHealthClient(l.conn).Check(ctx, &healthpb.HealthCheckRequest{})
	switch status.Code(err) {
	case codes.OK, codes.Unimplemented, codes.NotFound, codes.PermissionDenied:
		return nil
	default:
		return fmt.Errorf("broker %q: no receipt: %w", l.options.Broker, err)
	}
}

// JobEnding asks what is to become of the node; false too when the stream
// breaks before the answer.
func (l *Link) JobEnding(ctx context.Context, job uint32) (bool, error) {
	return l.ask(ctx, func(query uint64) *api.ConnectRequest {
		return &api.ConnectRequest{Message: &api.ConnectRequest_JobEnding{JobEnding: &api.JobEnding{Query: query, JobId: job}}}
	})
}

// ask sends a message with a number of its own, and waits for its answer.
func (l *Link) ask(ctx context.Context, message func(number uint64) *api.ConnectRequest) (bool, error) {
	answer := make(chan bool, 1)
	l.mu.Lock()
	l.query++
	query := l.query
	l.asked[query] = answer
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.asked, query)
	}()
	if err := l.Send(ctx, message(query)); err != nil {
		return false, err
	}
	select {
	case said, ok := <-answer:
		if !ok {
			return false, fmt.Errorf("broker %q: stream broke: %w", l.options.Broker, kb.ErrUnavailable)
		}
		return said, nil
	case <-ctx.Done():
		return false, fmt.Errorf("broker %q: %w", l.options.Broker, ctx.Err())
	}
}

func (l *Link) answered(query uint64, kept bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if answer, ok := l.asked[query]; ok {
		answer <- kept
		delete(l.asked, query)
	}
}
