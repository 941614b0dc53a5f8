// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/api/convert"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/rounded"
)

// eventFlags are what the events are selected by.
type eventFlags struct {
	node, profile, since string
	job                  uint32
	after                uint64
	limit                uint32
	follow, resume       bool
}

func (a *app) eventsCommand() *cobra.Command {
	var f eventFlags
	c := a.command("events", "Show what happened to nodes, jobs, profiles, kernels and rules", cobra.NoArgs, nil)
	c.RunE = a.run(func(ctx context.Context, _ []string) error {
		f.resume = c.Flags().Changed("after")
		return a.events(ctx, f)
	})
	flags := c.Flags()
	flags.StringVar(&f.node, "node", "", "only events of this `node`")
	flags.Uint32Var(&f.job, "job", 0, "only events of this `job`, by its id in Slurm")
	flags.StringVar(&f.profile, "profile", "", "only events of this `profile`, its kernels and jobs")
	flags.StringVar(&f.since, "since", "", "only events since this `time`: 2026-11-28, 2026-11-28T21:00, 2h or 3d")
	flags.Uint64Var(&f.after, "after", 0, "only events after the one with this `number`")
	flags.Uint32Var(&f.limit, "limit", 0, "at most this many, up to 10000 (default 1000)")
	flags.BoolVarP(&f.follow, "follow", "f", false, "go on with new events as they happen; with -o json one on each line")
	return c
}

func (a *app) events(ctx context.Context, f eventFlags) error {
	filter := &api.EventFilter{Node: f.node, JobId: f.job, Profile: f.profile}
	if f.since != "" {
		since, err := timeSince(f.since, time.Now())
		if err != nil {
			return usageError{fmt.Errorf("--since: %w", err)}
		}
		filter.Since = timestamppb.New(since)
	}
	if f.follow {
		if f.limit != 0 {
			return usageError{errors.New("--limit and --follow exclude each other")}
		}
		return a.followEvents(ctx, filter, f)
	}
	response, err := call(ctx, a, api.NewEventServiceClient, api.EventServiceClient.ListEvents, &api.ListEventsRequest{Filter: filter, After: f.after, Limit: f.limit})
	if err != nil {
		return err
	}
	return a.show(response, a.orNone(len(response.GetEvents()), "no such events", func(p *page) {
		p.head("TIME", "ABOUT", "EVENT")
		for _, e := range response.GetEvents() {
			p.row(clock(e.GetAt().AsTime()), eventOf(e), sentence(e))
		}
	}))
}

// eventOf names what an event is about.
func eventOf(e *api.Event) string {
	switch e.GetSubject() {
	case api.EventSubject_EVENT_SUBJECT_NODE:
		return "node " + e.GetNode()
	case api.EventSubject_EVENT_SUBJECT_JOB:
		return fmt.Sprintf("job %d", e.GetJobId())
	case api.EventSubject_EVENT_SUBJECT_RULE:
		return "rule " + e.GetRule()
	}
	return convert.Word(e.GetSubject()) + " " + kernelRef(e.GetProfile(), e.GetVersion())
}

// sentence says what happened, to which kernel, for which job, how long it took, by whom and why.
func sentence(e *api.Event) string {
	parts := []string{strings.ReplaceAll(e.GetEvent(), "-", " ")}
	switch subject := e.GetSubject(); {
	case e.GetEvent() == kb.NodeProven && e.GetTo() != "":
		parts = append(parts, fmt.Sprintf("%s (%s)", kernelRef(e.GetProfile(), e.GetVersion()), e.GetTo()))
	case e.GetProfile() != "" && (subject == api.EventSubject_EVENT_SUBJECT_NODE || subject == api.EventSubject_EVENT_SUBJECT_JOB):
		parts = append(parts, kernelRef(e.GetProfile(), e.GetVersion()))
	case e.GetTo() != "":
		parts = append(parts, e.GetTo())
	}
	if e.GetSubject() == api.EventSubject_EVENT_SUBJECT_NODE && e.GetJobId() != 0 {
		parts = append(parts, fmt.Sprintf("(job %d)", e.GetJobId()))
	}
	if t := e.GetTook(); t != nil {
		parts = append(parts, "after "+rounded.Time(t.AsDuration()))
	}
	if who := e.GetWho(); who != "" && who != "kernel-broker" {
		parts = append(parts, "by "+who)
	}
	text := strings.Join(parts, " ")
	if e.GetWhy() != "" {
		text += ": " + e.GetWhy()
	}
	return text
}

// followEvents goes on where it was when the broker is restarted.
func (a *app) followEvents(ctx context.Context, filter *api.EventFilter, f eventFlags) error {
	conn, err := a.dial()
	if err != nil {
		return err
	}
	request := &api.WatchEventsRequest{Filter: filter}
	if f.resume {
		request.After = &f.after
	}
	for {
		stream, err := api.NewEventServiceClient(conn).WatchEvents(ctx, request)
		for err == nil {
			var page *api.WatchEventsResponse
			if page, err = stream.Recv(); err == nil {
				request.After = &page.Next
				err = a.showFollowed(page.GetEvents())
			}
		}
		if code := status.Code(err); request.After == nil || code != codes.Unavailable && code != codes.DeadlineExceeded && !errors.Is(err, io.EOF) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
	}
}

func (a *app) showFollowed(events []*api.Event) error {
	for _, e := range events {
		if a.output == outputTable {
			if err := a.page(func(p *page) { p.line("%s  %s  %s", clock(e.GetAt().AsTime()), eventOf(e), sentence(e)) }); err != nil {
				return err
			}
			continue
		}
		text, err := marshal(e)
		if err != nil {
			return err
		}
		// One JSON object a line is YAML, too.
		if _, err := fmt.Fprintf(a.Stdout, "%s\n", bytes.TrimSpace(escaped(text))); err != nil {
			return err
		}
	}
	return nil
}

// dayEvents is how many events of its last day a node is shown with.
const dayEvents = 20

// lastDay are a node's events of the last 24 hours; none from a broker that keeps none.
func (a *app) lastDay(ctx context.Context, node string) ([]*api.Event, error) {
	response, err := call(ctx, a, api.NewEventServiceClient, api.EventServiceClient.ListEvents, &api.ListEventsRequest{
		Filter: &api.EventFilter{Node: node, Since: timestamppb.New(time.Now().Add(-24 * time.Hour))}, Limit: dayEvents})
	if status.Code(err) == codes.Unimplemented {
		return nil, nil
	}
	return response.GetEvents(), err
}
