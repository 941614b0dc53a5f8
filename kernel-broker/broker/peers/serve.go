// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

const (
	artifactsPath = "/artifacts/"
	headerLimit   = 10 * time.Second // and of the handshake
	mostHeaders   = 8 << 10
)

// Serve answers peers until ctx ends.
func (e *Exchange) Serve(ctx context.Context, l net.Listener) error {
	server := &http.Server{Handler: e.handler(), ReadHeaderTimeout: headerLimit, ReadTimeout: headerLimit, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: mostHeaders,
		ErrorLog: slog.NewLogLogger(e.o.Log.Handler(), slog.LevelWarn)}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() }) // Serve says what came of it
	defer stop()
	err := server.Serve(tls.NewListener(l, e.o.TLS))
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("brokers' port: %w", err)
}

func (e *Exchange) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+artifactsPath+"{$}", e.serveList)
	mux.HandleFunc("GET "+artifactsPath+"{digest}", e.serveOne)
	return mux
}

func (e *Exchange) serveOne(w http.ResponseWriter, r *http.Request) {
	digest := r.PathValue("digest")
	// The own ones alone: peers ask each other, and a question is not passed on.
	file, err := e.Store.Open(r.Context(), digest)
	switch {
	case errors.Is(err, kb.ErrNotFound), errors.Is(err, kb.ErrInvalid):
		http.Error(w, "not here", http.StatusNotFound)
		return
	case err != nil:
		e.o.Log.Error("artifact not given to another broker", "digest", digest, "error", err)
		http.Error(w, "cannot be read", http.StatusInternalServerError)
		return
	}
	defer func() { _ = file.Close() }() // only read from
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("ETag", `"`+digest+`"`)
	http.ServeContent(w, r, "", time.Time{}, file)
}

func (e *Exchange) serveList(w http.ResponseWriter, _ *http.Request) {
	files, err := e.Entries()
	if err != nil {
		e.o.Log.Error("artifacts not listed for another broker", "error", err)
		http.Error(w, "cannot be read", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	out := bufio.NewWriter(w)
	for _, f := range files {
		fmt.Fprintf(out, "%s %d\n", f.Digest, f.Size)
	}
	_ = out.Flush() // the peer misses the rest
}
