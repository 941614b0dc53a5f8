// SPDX-License-Identifier: Apache-2.0

package web

import (
	"fmt"
	"net/http"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/graph"
)

// buildView is the newest build of a kernel on this host.
type buildView struct {
	Name, State, Where, Error string
	Began, Ended              time.Time
	Done                      int
	Steps                     []buildStep
}

// buildStep is one step of a build.
type buildStep struct {
	Name, State, Progress, Job string
	Took                       time.Duration
	Bytes                      uint64
}

func buildOf(b graph.Status, now time.Time) buildView {
	v := buildView{Name: b.Name, State: string(b.State), Where: fmt.Sprintf("%s, on %s", b.Where, b.Host), Error: b.Error, Began: b.Began, Ended: b.Ended}
	for _, s := range b.Steps {
		step := buildStep{Name: s.Name, State: string(s.State), Job: s.Job, Took: -1, Bytes: uint64(max(0, s.Bytes))}
		switch {
		case s.Cached:
			step.State = "done before"
		case s.Seconds > 0:
			step.Took = time.Duration(s.Seconds * float64(time.Second))
		case !s.Ended.IsZero():
			step.Took = s.Ended.Sub(s.Began)
		case !s.Began.IsZero() && s.State != graph.Killed:
			step.Took = now.Sub(s.Began)
		}
		if s.Total > 0 {
			step.Progress = fmt.Sprintf("%d of %d", s.Done, s.Total)
		}
		if s.State == graph.Done {
			v.Done++
		}
		v.Steps = append(v.Steps, step)
	}
	return v
}

func (s *Server) readBuilds() ([]buildView, error) {
	all, err := s.o.Source.Builds()
	if err != nil {
		return nil, err
	}
	var views []buildView
	for _, b := range all {
		views = append(views, buildOf(b, s.o.Now()))
	}
	return views, nil
}

func (s *Server) builds(*http.Request) (page, error) {
	views, err := s.readBuilds()
	return page{Title: "Builds", Here: "/builds", Template: "builds", Data: views}, err
}

func (s *Server) build(r *http.Request) (page, error) {
	views, err := s.readBuilds()
	for _, v := range views {
		if v.Name == r.PathValue("name") {
			return page{Title: "Build of " + v.Name, Here: "/builds", Template: "build", Data: v}, nil
		}
	}
	if err == nil {
		err = fmt.Errorf("no build of %q on this host: %w", r.PathValue("name"), kb.ErrNotFound)
	}
	return page{}, err
}
