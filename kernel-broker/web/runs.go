// SPDX-License-Identifier: Apache-2.0

package web

import (
	"bytes"
	"cmp"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/api/convert"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
)

// runView is a profiling run, as a line of the list and as a page.
type runView struct {
	ID                                               uint64
	State, Reason, Job, JobPath, User, Kernel        string
	Collectors, RequestedBy, Headline, Refused, Page string
	Delivered                                        int
	Nodes                                            []runNode
	Began, Ended                                     time.Time
}

// runNode is a node's part in a run.
type runNode struct{ Name, State, Why string }

func runOf(r *api.Run) runView {
	v := runView{ID: r.GetId(), State: convert.Word(r.GetState()), Reason: r.GetReason(), User: r.GetUser(),
		Kernel: kernelRef(r.GetKernelProfile(), r.GetKernelVersion()), Collectors: strings.Join(r.GetCollectors(), ", "),
		RequestedBy: r.GetRequestedBy(), Began: convert.TimeFromProto(r.GetBegan()), Ended: convert.TimeFromProto(r.GetEnded())}
	switch {
	case r.GetReference() != "":
		v.Job, v.JobPath = r.GetReference(), fmt.Sprintf("/jobs/%d?restart=%d", r.GetJobId(), r.GetRestartCount())
	case r.GetProfile() != "":
		v.Job = "next of profile " + r.GetProfile()
	default:
		v.Job = "next of " + r.GetApplication()
	}
	for _, n := range r.GetNodes() {
		v.Nodes = append(v.Nodes, runNode{n.GetName(), convert.Word(n.GetState()), cmp.Or(n.GetReason(), n.GetPartial())})
		if n.GetState() == api.RunNodeState_RUN_NODE_STATE_DELIVERED {
			v.Delivered++
		}
	}
	return v
}

func (s *Server) runs(r *http.Request) (page, error) {
	response, err := call(r.Context(), s.calls.runs.ListRuns, &api.ListRunsRequest{})
	if err != nil {
		return page{}, err
	}
	var rows []runView
	for _, run := range response.GetRuns() {
		rows = append(rows, runOf(run))
	}
	return page{Title: "Profiling runs", Here: "/runs", Template: "runs", Data: rows}, nil
}

func (s *Server) runNamed(r *http.Request) (*api.Run, error) {
	id, err := strconv.ParseUint(r.PathValue("id"), 10, 64)
	if err != nil {
		return nil, fmt.Errorf("%q is no number of a run: %w", r.PathValue("id"), kb.ErrNotFound)
	}
	response, err := call(r.Context(), s.calls.runs.GetRun, &api.GetRunRequest{Id: id})
	return response.GetRun(), err
}

func (s *Server) run(r *http.Request) (page, error) {
	run, err := s.runNamed(r)
	if err != nil {
		return page{}, err
	}
	v := runOf(run)
	if v.Delivered > 0 {
		if made, err := s.o.Source.Report(r.Context(), run); err != nil {
			_, _, v.Refused = s.explain(err)
		} else {
			v.Headline, v.Page = made.Decision.Headline, fmt.Sprintf("/runs/%d/report", v.ID)
		}
	}
	return page{Title: fmt.Sprintf("Run %d", v.ID), Here: "/runs", Template: "run", Data: v}, nil
}

// runReport serves the report of a run, with its flame graph.
func (s *Server) runReport(w http.ResponseWriter, r *http.Request) {
	text, err := s.makeRunReport(r)
	s.serveReport(w, r, text, err)
}

func (s *Server) makeRunReport(r *http.Request) ([]byte, error) {
	run, err := s.runNamed(r)
	if err != nil {
		return nil, err
	}
	made, err := s.o.Source.Report(r.Context(), run)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = made.WriteHTML(&out)
	return out.Bytes(), err
}
