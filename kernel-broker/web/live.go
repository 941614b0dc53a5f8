// SPDX-License-Identifier: Apache-2.0

package web

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// feed looks at the broker while somebody watches, once for all that do.
type feed struct {
	look  func(context.Context) (*nowView, error)
	pause time.Duration

	mu       sync.Mutex
	watchers map[chan news]bool
	stop     context.CancelFunc
}

// news is what one look has shown: a view, or why there is none.
type news struct {
	view *nowView
	err  error
}

// watch returns a channel that always has the newest look, and a function that ends it.
func (f *feed) watch() (<-chan news, func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := make(chan news, 1)
	if len(f.watchers) == 0 {
		f.watchers = map[chan news]bool{}
		ctx, stop := context.WithCancel(context.Background())
		f.stop = stop
		go f.run(ctx)
	}
	f.watchers[c] = true
	return c, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if delete(f.watchers, c); len(f.watchers) == 0 {
			f.stop()
		}
	}
}

// quietPauses is how much longer the pause is while no node is on its way: nothing is missed but its first seconds.
const quietPauses = 2

func (f *feed) run(ctx context.Context) {
	for ctx.Err() == nil {
		view, err := f.look(ctx)
		f.tell(ctx, news{view, err})
		pause := f.pause
		if err == nil && view.quiet() {
			pause *= quietPauses
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// tell replaces a look that a slow watcher has not taken yet. One that ends takes with it what it was about to tell: the
// watchers are the next one's.
func (f *feed) tell(ctx context.Context, n news) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	for c := range f.watchers {
		select {
		case <-c:
		default:
		}
		c <- n
	}
}

// stream writes server-sent events.
type stream struct {
	w    http.ResponseWriter
	sent map[string]string
}

func newStream(w http.ResponseWriter) *stream {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // a proxy hands events on at once
	return &stream{w, map[string]string{}}
}

// writeLimit is the time that a reader has for one event.
const writeLimit = 10 * time.Second

func (s *stream) event(name string, data any) error {
	text, err := json.Marshal(data)
	if err != nil {
		return err
	}
	to := http.NewResponseController(s.w)
	if err := to.SetWriteDeadline(time.Now().Add(writeLimit)); err != nil {
		return err
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "event: %s\ndata: %s\n\n", name, text)
	if _, err := s.w.Write(out.Bytes()); err != nil {
		return err
	}
	return to.Flush()
}

// part sends a part of the page if it has changed.
func (s *stream) part(id, template string, data any) error {
	html, err := renderPart(template, data)
	if err != nil || s.sent[id] == string(html) {
		return err
	}
	s.sent[id] = string(html)
	return s.event("part", map[string]string{"id": id, "html": string(html)})
}

// state tells whether the broker answers; "" if it does. It is sent each time, so that a stream that broke is noticed.
func (s *stream) state(text string) error { return s.event("state", text) }

// live keeps the first page up to date.
func (s *Server) live(w http.ResponseWriter, r *http.Request) {
	looks, end := s.feed.watch()
	defer end()
	out := newStream(w)
	var cells []cell
	for {
		select {
		case <-r.Context().Done():
			return
		case n := <-looks:
			var err error
			if cells, err = s.update(out, cells, n); err != nil {
				return // the reader has gone
			}
		}
	}
}

// update sends what differs from the cells that were sent.
func (s *Server) update(out *stream, had []cell, n news) ([]cell, error) {
	if n.err != nil {
		_, _, text := s.explain(n.err)
		return had, out.state(text)
	}
	if err := out.cells(had, n.view.Cells); err != nil {
		return nil, err
	}
	for _, id := range []string{"legend", "switching", "waiting", "attend"} {
		if err := out.part(id, id, n.view); err != nil {
			return nil, err
		}
	}
	return n.view.Cells, out.state("")
}

// cells sends those that have changed, and all the first time: the page may be older than the stream. A page with other
// nodes loads itself again.
func (s *stream) cells(had, now []cell) error {
	changed := [][3]string{}
	for i, c := range now {
		if len(had) != len(now) || c != had[i] {
			changed = append(changed, [3]string{fmt.Sprint(i), c.Class, c.Label})
		}
	}
	if len(changed) == 0 && len(had) == len(now) {
		return nil
	}
	return s.event("cells", map[string]any{"names": namesOf(now), "cells": changed})
}

// liveJob keeps the page of a job up to date.
func (s *Server) liveJob(w http.ResponseWriter, r *http.Request) {
	request, err := jobNamed(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	out := newStream(w)
	for {
		v, err := s.lookJob(r.Context(), request)
		if err != nil {
			_, _, text := s.explain(err)
			err = out.state(text)
		} else if err = out.part("content", "job", v); err == nil {
			err = out.state("")
		}
		if err != nil {
			return // the reader has gone
		}
		select {
		case <-r.Context().Done():
			return
		case <-time.After(s.o.Pause):
		}
	}
}
