// SPDX-License-Identifier: Apache-2.0

// Package web is the page of Kernel Broker: what runs on each node, what is switching, what waits and why, the catalog,
// profiling runs, builds, the hardware ledger and the broker's health. It only shows.
//
// The idea: the page is served by kernelctl in a user's own process, and every figure on it comes from a call that this
// user could make with kernelctl. So the broker has no HTTP, no session and no second table of rights: what it refuses to
// the user, the page refuses.
//
// The server has three layers. guard lets the user's own browser in, and nobody else. A view turns the API's messages into
// plain data, without I/O. A template makes HTML of that, and a stream of server-sent events repeats the parts that have
// changed. The page works without its script, which keeps it up to date and moves in the grid of nodes by arrow keys.
package web

import (
	"context"
	"embed"
	"log/slog"
	"net/http"
	"time"

	"google.golang.org/grpc"

	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/graph"
	"github.com/kernelbroker/kernelbroker/kernel-broker/report/runreport"
)

//go:embed assets
var assets embed.FS

// Source is where the page's figures come from. Each call is made as the user whose page it is.
type Source struct {
	// Broker is the connection to the broker at Address.
	Broker  grpc.ClientConnInterface
	Address string
	// Report makes the report of a run; an error if the user may not read its results.
	Report func(context.Context, *api.Run) (runreport.Report, error)
	// Document reads a stored file about a kernel.
	Document func(ctx context.Context, digest string, size uint64) ([]byte, error)
	// Builds are the newest builds of kernels on this host, one of each kernel.
	Builds func() ([]graph.Status, error)
	// Gain is what a kernel is worth, in words, for the kernel's work and for the whole job.
	Gain func(*api.ProfileVersion) (kernel, whole string)
}

// Options of a server.
type Options struct {
	Source  Source
	Version string
	Log     *slog.Logger
	// Guard admits requests; nil admits all, behind a proxy that does so.
	Guard *Guard
	// Now is the clock.
	Now func() time.Time
	// Pause is the time between two looks at the broker, while somebody watches.
	Pause time.Duration
}

// defaultPause is short beside a switch, which takes seconds, and long beside the work of a look.
const defaultPause = 2 * time.Second

// callLimit is the time limit of one call.
const callLimit = 10 * time.Second

// Server is the page.
type Server struct {
	o      Options
	calls  calls
	colour palette
	feed   *feed
}

// New returns a server. Run keeps its streams going.
func New(o Options) *Server {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Pause == 0 {
		o.Pause = defaultPause
	}
	s := &Server{o: o, calls: newCalls(o.Source.Broker)}
	s.feed = &feed{look: s.lookNow, pause: o.Pause}
	return s
}

// Handler serves the page.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	page := func(pattern string, view func(*http.Request) (page, error)) {
		mux.HandleFunc("GET "+pattern, func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, view) })
	}
	page("/{$}", s.now)
	page("/jobs", s.jobs)
	page("/jobs/{id}", s.job)
	page("/nodes/{name}", s.node)
	page("/kernels", s.kernels)
	page("/kernels/{name}", s.kernel)
	page("/runs", s.runs)
	page("/runs/{id}", s.run)
	page("/builds", s.builds)
	page("/builds/{name}", s.build)
	page("/hardware", s.hardware)
	page("/health", s.health)
	page("/", s.missing)
	mux.HandleFunc("GET /nodes", s.findNode)
	mux.HandleFunc("GET /kernels/{name}/{version}/report", s.kernelReport)
	mux.HandleFunc("GET /runs/{id}/report", s.runReport)
	mux.HandleFunc("GET /live", s.live)
	mux.HandleFunc("GET /live/jobs/{id}", s.liveJob)
	mux.Handle("GET /assets/", s.files())
	var handler http.Handler = mux
	if s.o.Guard != nil {
		handler = s.o.Guard.admit(handler)
	}
	return harden(handler)
}

// files serves the stylesheet and the script.
func (s *Server) files() http.Handler {
	served := http.FileServerFS(assets)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// The program is new after an upgrade, at the same address.
		w.Header().Set("Cache-Control", "no-cache")
		served.ServeHTTP(w, r)
	})
}
