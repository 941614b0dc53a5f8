// SPDX-License-Identifier: Apache-2.0

package web

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/rounded"
)

// nodeView is the page of one node.
type nodeView struct {
	Name    string
	Cell    cell
	State   string
	Cause   string
	Facts   []fact
	History []nodeEvent
}

// fact is a name with its value.
type fact struct{ Name, Text string }

// nodeEvent is something that happened to the node.
type nodeEvent struct {
	At time.Time
	// Job and Path are empty for an event without a job. Took is negative if nothing ends with it.
	Event, Detail, Job, Kernel, Path string
	Took                             time.Duration
}

// mostEvents of a node are on its page.
const mostEvents = 200

func (s *Server) node(r *http.Request) (page, error) {
	response, err := call(r.Context(), s.calls.nodes.GetNode, &api.GetNodeRequest{Name: r.PathValue("name")})
	if err != nil {
		return page{}, err
	}
	events, err := call(r.Context(), s.calls.events.ListEvents, &api.ListEventsRequest{Filter: &api.EventFilter{Node: r.PathValue("name")}, Limit: mostEvents})
	if err != nil && status.Code(err) != codes.Unimplemented { // a broker of an earlier release keeps none
		return page{}, err
	}
	n := response.GetNode()
	v := nodeView{Name: n.GetName(), Cell: s.colour.cellOf(n), State: string(stateOf(n)), Cause: n.GetCause(), Facts: factsOf(n),
		History: historyOf(events.GetEvents())}
	return page{Title: "Node " + v.Name, Here: "/", Template: "node", Data: v}, nil
}

// factsOf a node, without those that are not known.
func factsOf(n *api.Node) []fact {
	i, h := n.GetInventory(), n.GetHardware()
	proven := "no"
	if n.GetAttested() {
		proven = "yes, build id " + short(n.GetBuildId())
	}
	agent := "away"
	if n.GetConnected() {
		agent = strings.TrimSpace("connected " + n.GetAgentVersion())
	}
	job := ""
	if n.GetJobId() != 0 {
		job = fmt.Sprint(n.GetJobId())
	}
	facts := []fact{
		{"Phase", nodePhase(n)}, {"Runs", runs(n)}, {"Proven", proven}, {"Wanted", kernelRef(n.GetDesiredProfile(), n.GetDesiredVersion())},
		{"Release", n.GetRelease()}, {"Job", job}, {"Slurm", n.GetSlurmState()}, {"Slurm's reason", n.GetSlurmReason()},
		{"Agent", agent}, {"Last seen", clock(n.GetLastSeen())}, {"Kexecs", grouped(int(min(n.GetKexecs(), 1<<53)))},
		{"Memory", rounded.Size(i.GetMemoryMib() << 20)}, {"CPUs", fmt.Sprint(i.GetCpus())}, {"Application CPUs", i.GetApplicationCpus()},
		{"Board", h.GetBoard()}, {"Firmware", h.GetFirmware()}, {"Network", h.GetNic()},
		{"Root", strings.TrimSpace(i.GetRootDevice() + " " + i.GetRootFilesystem())}, {"Drivers in use", strings.Join(i.GetDrivers(), " ")},
	}
	return slices.DeleteFunc(facts, func(f fact) bool { return f.Text == "" })
}

// historyOf a node by its events, the newest first.
func historyOf(events []*api.Event) []nodeEvent {
	history := make([]nodeEvent, 0, len(events))
	for _, e := range events {
		h := nodeEvent{At: e.GetAt().AsTime(), Event: strings.ReplaceAll(e.GetEvent(), "-", " "), Took: -1,
			Detail: strings.Join(slices.DeleteFunc([]string{e.GetTo(), e.GetWhy()}, func(s string) bool { return s == "" }), ": ")}
		if e.GetProfile() != "" {
			h.Kernel = kernelRef(e.GetProfile(), e.GetVersion())
		}
		if e.GetJobId() != 0 {
			j := &api.Job{JobId: e.GetJobId(), RestartCount: e.GetRestartCount()}
			h.Job, h.Path = fmt.Sprint(e.GetJobId()), jobPath(j)
		}
		if e.GetTook() != nil {
			h.Took = e.GetTook().AsDuration()
		}
		if who := e.GetWho(); who != "" && who != "kernel-broker" {
			h.Event += " by " + who
		}
		history = append(history, h)
	}
	slices.Reverse(history)
	return history
}
