// SPDX-License-Identifier: Apache-2.0

package web

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/api/convert"
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

// nodeEvent is a step of a switch of the node.
type nodeEvent struct {
	At                               time.Time
	Event, Detail, Job, Kernel, Path string
}

// mostEvents of a node are on its page.
const mostEvents = 200

func (s *Server) node(r *http.Request) (page, error) {
	response, err := call(r.Context(), s.calls.nodes.GetNode, &api.GetNodeRequest{Name: r.PathValue("name")})
	if err != nil {
		return page{}, err
	}
	jobs, err := call(r.Context(), s.calls.jobs.ListJobs, &api.ListJobsRequest{Limit: mostJobs})
	if err != nil {
		return page{}, err
	}
	n := response.GetNode()
	v := nodeView{Name: n.GetName(), Cell: s.colour.cellOf(n), State: string(stateOf(n)), Cause: n.GetCause(), Facts: factsOf(n),
		History: historyOf(n.GetName(), jobs.GetJobs())}
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

// historyOf a node in the records of jobs, the newest first.
func historyOf(name string, jobs []*api.Job) []nodeEvent {
	var events []nodeEvent
	for _, j := range jobs {
		for _, e := range j.GetTimeline() {
			if e.GetNode() == name {
				events = append(events, nodeEvent{e.GetAt().AsTime(), e.GetEvent(), e.GetDetail(), convert.JobName(j), jobKernel(j), jobPath(j)})
			}
		}
	}
	slices.SortStableFunc(events, func(a, b nodeEvent) int { return cmp.Compare(b.At.UnixNano(), a.At.UnixNano()) })
	return events[:min(len(events), mostEvents)]
}
