// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/history"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/server"
	"github.com/kernelbroker/kernelbroker/tests/support/memstore"
)

// eventsOf serves two users' jobs, a node of each, and a profile.
func eventsOf(t *testing.T, shows func(uint32) bool) (*fixture, *history.Journal) {
	t.Helper()
	journal, err := history.Open(t.Context(), history.Options{Store: memstore.New(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	f := serve(t, func(o *server.Options) {
		o.ShowsOthers = func(_ context.Context, uid uint32) bool { return shows(uid) }
	}, func(s *server.Server) { api.RegisterEventServiceServer(s, server.NewEventService(journal)) })
	own, theirs := uint32(plainUser), uint32(other)
	for _, e := range []kb.ClusterEvent{
		{Subject: kb.SubjectJob, Event: "ready", Job: kb.JobID{Job: 1}, UID: &own, User: "me"},
		{Subject: kb.SubjectJob, Event: "ready", Job: kb.JobID{Job: 2}, UID: &theirs, User: "them"},
		{Subject: kb.SubjectNode, Event: kb.NodeProven, Node: "n2", Job: kb.JobID{Job: 2}, UID: &theirs, User: "them"},
		{Subject: kb.SubjectKernel, Event: kb.ChangeRetired, Kernel: kb.Ref{Profile: "mitgcm", Version: 1}, Who: "eve"},
	} {
		if _, err := journal.Commit(t.Context(), []kb.ClusterEvent{e}); err != nil {
			t.Fatal(err)
		}
	}
	return f, journal
}

func lines(events []*api.Event) (list []string) {
	for _, e := range events {
		list = append(list, strings.Join(strings.Fields(fmt.Sprintln(e.GetNumber(), e.GetEvent(), e.GetNode(), e.GetJobId(), e.GetUser(), e.GetProfile())), " "))
	}
	return list
}

func listed(t *testing.T, conn *grpc.ClientConn, r *api.ListEventsRequest) *api.ListEventsResponse {
	t.Helper()
	response, err := api.NewEventServiceClient(conn).ListEvents(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return response
}

func TestEventsOfOthersAreHidden(t *testing.T) {
	for _, c := range []struct {
		name  string
		shows bool
		want  int
	}{{"private", false, 3}, {"public", true, 4}} {
		f, _ := eventsOf(t, func(uint32) bool { return c.shows })
		all := listed(t, f.as(t, plainUser), &api.ListEventsRequest{})
		text := strings.Join(lines(all.GetEvents()), "\n")
		if len(all.GetEvents()) != c.want || all.GetNext() != 4 || all.GetOldest() != 1 || strings.Contains(text, "them") != c.shows {
			t.Errorf("%s: go on after %d, oldest %d:\n%s", c.name, all.GetNext(), all.GetOldest(), text)
		}
		if found := listed(t, f.as(t, plainUser), &api.ListEventsRequest{Filter: &api.EventFilter{JobId: 2}}); len(found.GetEvents()) > 0 != c.shows {
			t.Errorf("%s: by its job: %q", c.name, lines(found.GetEvents()))
		}
		if retired := listed(t, f.as(t, plainUser), &api.ListEventsRequest{Filter: &api.EventFilter{Profile: "mitgcm"}, After: 1}); len(retired.GetEvents()) != 1 {
			t.Errorf("%s: of the profile: %q", c.name, lines(retired.GetEvents()))
		}
	}
}

func TestEventsAreFollowed(t *testing.T) {
	f, journal := eventsOf(t, func(uint32) bool { return false })
	watch := func(r *api.WatchEventsRequest) api.EventService_WatchEventsClient {
		t.Helper()
		stream, err := api.NewEventServiceClient(f.as(t, plainUser)).WatchEvents(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		return stream
	}
	next := func(stream api.EventService_WatchEventsClient) *api.WatchEventsResponse {
		t.Helper()
		page, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		return page
	}
	after := uint64(1)
	resumed, fresh := watch(&api.WatchEventsRequest{After: &after}), watch(&api.WatchEventsRequest{})
	if page := next(resumed); !slices.Equal(lines(page.GetEvents()), []string{"3 proven n2 0", "4 retired 0 mitgcm"}) || page.GetNext() != 4 {
		t.Errorf("after 1: %q, go on after %d", lines(page.GetEvents()), page.GetNext())
	}
	if page := next(fresh); len(page.GetEvents()) != 0 || page.GetNext() != 4 {
		t.Errorf("from now on: %q, go on after %d", lines(page.GetEvents()), page.GetNext())
	}
	if _, err := journal.Commit(t.Context(), []kb.ClusterEvent{{Subject: kb.SubjectNode, Event: kb.NodeProven, Node: "n3"}}); err != nil {
		t.Fatal(err)
	}
	for name, stream := range map[string]api.EventService_WatchEventsClient{"resumed": resumed, "fresh": fresh} {
		if page := next(stream); !slices.Equal(lines(page.GetEvents()), []string{"5 proven n3 0"}) {
			t.Errorf("%s: %q", name, lines(page.GetEvents()))
		}
	}
	beyond := uint64(99)
	if _, err := watch(&api.WatchEventsRequest{After: &beyond}).Recv(); status.Code(err) != codes.InvalidArgument {
		t.Errorf("after a number that is not there: %v", err)
	}
}
