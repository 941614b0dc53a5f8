// SPDX-License-Identifier: Apache-2.0

package server

import (
	"cmp"
	"context"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/api/convert"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/history"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/limit"
)

// Events is what EventService serves.
type Events interface {
	List(ctx context.Context, s history.Selection) (events []kb.ClusterEvent, next uint64, err error)
	Follow(ctx context.Context, s history.Selection, send func(events []kb.ClusterEvent, next uint64) error) error
	Stats() (oldest, next uint64, bytes int64)
}

const (
	defaultEvents = 1000
	maxEvents     = 10000
	// maxFollowers follow at a time, and followersOf one caller.
	maxFollowers = 256
	followersOf  = 8
)

// NewEventService serves events.
func NewEventService(e Events) api.EventServiceServer {
	return &eventService{events: e, followers: limit.NewSemaphore(maxFollowers)}
}

type eventService struct {
	api.UnimplementedEventServiceServer
	events    Events
	followers *limit.Semaphore
}

// ListEvents implements api.EventServiceServer.
func (s *eventService) ListEvents(ctx context.Context, r *api.ListEventsRequest) (*api.ListEventsResponse, error) {
	events, next, err := s.events.List(ctx, history.Selection{EventFilter: convert.EventFilterFromProto(r.GetFilter()), From: r.GetAfter() > 0, After: r.GetAfter(),
		Limit: int(cmp.Or(r.GetLimit(), defaultEvents)), See: seeing(ctx)})
	if err != nil {
		return nil, err
	}
	oldest, _, _ := s.events.Stats()
	return &api.ListEventsResponse{Events: eventsToProto(events), Next: next, Oldest: oldest}, nil
}

// WatchEvents implements api.EventServiceServer.
func (s *eventService) WatchEvents(r *api.WatchEventsRequest, stream api.EventService_WatchEventsServer) error {
	ctx := stream.Context()
	caller := CallerOf(ctx)
	free := s.followers.TryAcquire(caller.holder(), followersOf)
	if free == nil {
		own, all := s.followers.Held(caller.holder())
		return retryIn(watchWait, "%s follows events %d times, at most %d; all users do %d times, at most %d", caller, own, followersOf, all, maxFollowers)
	}
	defer free()
	selection := history.Selection{EventFilter: convert.EventFilterFromProto(r.GetFilter()), After: r.GetAfter(), See: seeing(ctx)}
	if r.After == nil && selection.Since.IsZero() {
		_, next, _ := s.events.Stats()
		selection.After = next - 1
	}
	return s.events.Follow(ctx, selection, func(events []kb.ClusterEvent, next uint64) error {
		return stream.Send(&api.WatchEventsResponse{Events: eventsToProto(events), Next: next})
	})
}

// seeing is what the caller sees of an event; nil for one who sees all. Who may see others' jobs is asked once a call, as in
// other listings.
func seeing(ctx context.Context) func(kb.ClusterEvent) (kb.ClusterEvent, bool) {
	whose := visibilityOf(ctx).whose(ctx)
	if whose == nil {
		return nil
	}
	return func(e kb.ClusterEvent) (kb.ClusterEvent, bool) { return e.SeenBy(*whose) }
}

func eventsToProto(events []kb.ClusterEvent) []*api.Event {
	out := make([]*api.Event, len(events))
	for i, e := range events {
		out[i] = convert.EventToProto(e)
	}
	return out
}
