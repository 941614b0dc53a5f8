// SPDX-License-Identifier: Apache-2.0

package web

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
)

// sent is one server-sent event.
type sent struct{ name, data string }

// listen to a stream until the test says that it has seen enough.
func listen(t *testing.T, s *Server, path string, enough func(sent) bool) {
	t.Helper()
	served := httptest.NewServer(s.Handler())
	defer served.Close()
	ctx, end := context.WithCancel(t.Context())
	defer end()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, served.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	w, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = w.Body.Close() }()
	if w.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("the stream is %v", w.Header)
	}
	lines := bufio.NewScanner(w.Body)
	lines.Buffer(nil, 1<<20)
	var one sent
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ": ")
		switch name {
		case "event":
			one.name = value
		case "data":
			one.data = value
		case "":
			if enough(one) {
				return
			}
		}
	}
	t.Fatalf("the stream of %s ended: %v", path, lines.Err())
}

// The stream tells everything once, then what has changed, and when the broker is away and back.
func TestLive(t *testing.T) {
	b := cluster(40)
	s := serve(t, b)
	step, parts := 0, map[string]bool{}
	listen(t, s, "/live", func(e sent) bool {
		var news struct {
			Names string
			Cells [][3]string
		}
		if e.name == "part" {
			var part struct{ ID, HTML string }
			if err := json.Unmarshal([]byte(e.data), &part); err != nil {
				t.Fatal(err)
			}
			parts[part.ID] = true
		}
		if e.name == "cells" {
			if err := json.Unmarshal([]byte(e.data), &news); err != nil {
				t.Fatal(err)
			}
		}
		switch {
		case step == 0 && e.name == "cells":
			if len(news.Cells) != 40 || news.Names == "" {
				t.Errorf("at first %d cells, names %q", len(news.Cells), news.Names)
			}
			step++
		case step == 1 && e.name == "state" && len(parts) == 4:
			parts = map[string]bool{}
			b.change(func() {
				n := proto.CloneOf(b.nodes[6])
				n.Phase, n.Cause = api.NodePhase_NODE_PHASE_FAILED, "broken"
				b.nodes[6] = n
			})
			step++
		case step == 2 && e.name == "cells":
			if len(news.Cells) != 1 || news.Cells[0][0] != "6" || !strings.Contains(news.Cells[0][1], "failed") || !strings.Contains(news.Cells[0][2], "broken") {
				t.Errorf("the change is %v", news.Cells)
			}
			step++
		case step == 3 && e.name == "state":
			if !parts["legend"] || !parts["attend"] || parts["waiting"] {
				t.Errorf("the parts %v have changed", parts)
			}
			b.change(func() { b.away = true })
			step++
		case step == 4 && strings.Contains(e.data, "does not answer"):
			b.change(func() { b.away = false })
			step++
		case step == 5 && e.name == "state" && e.data == `""`:
			return true
		}
		return false
	})
	// Without a reader the broker is left alone.
	s.feed.mu.Lock()
	defer s.feed.mu.Unlock()
	if len(s.feed.watchers) > 1 {
		t.Errorf("%d watchers are left", len(s.feed.watchers))
	}
}

func TestLiveJob(t *testing.T) {
	b := cluster(4)
	parts := 0
	listen(t, serve(t, b), "/live/jobs/21?restart=0", func(e sent) bool {
		if e.name != "part" {
			return false
		}
		parts++
		b.change(func() {
			j := proto.CloneOf(b.jobs[0])
			j.Phase = api.AllocationPhase_ALLOCATION_PHASE_READY
			b.jobs[0] = j
		})
		return strings.Contains(e.data, "ready")
	})
	if parts != 2 {
		t.Errorf("%d parts were sent for one change", parts)
	}
}

// A reader who is slow gets the newest look, and holds nobody up.
func TestFeedTellsTheNewest(t *testing.T) {
	looks := make(chan *nowView)
	f := &feed{look: func(ctx context.Context) (*nowView, error) {
		select {
		case v := <-looks:
			return v, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}}
	slow, end := f.watch()
	for i := range 3 {
		looks <- &nowView{Switches: make([]switching, i)}
	}
	looks <- &nowView{Switches: make([]switching, 3)}
	looks <- &nowView{Switches: make([]switching, 4)} // the one before it is told by now
	if n := <-slow; len(n.view.Switches) < 3 {
		t.Errorf("the slow reader gets look %d", len(n.view.Switches))
	}
	end()
	// A watcher of later has a run of its own.
	again, end := f.watch()
	defer end()
	looks <- &nowView{}
	if n := <-again; n.err != nil || n.view == nil {
		t.Errorf("the next reader is told %v", n)
	}
}
