// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/pprof"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// listenPprof makes the socket for profiles of the broker itself. What they show is nobody's but its administrators': the
// socket has its mode before it has its name, so that others cannot connect in between.
func listenPprof(ctx context.Context, path string) (net.Listener, error) {
	if err := takeSocket(path); err != nil {
		return nil, err
	}
	private := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var err error
		if cerr := raw.Control(func(fd uintptr) { err = unix.Fchmod(int(fd), 0o600) }); cerr != nil {
			return cerr
		}
		return err
	}}
	return private.Listen(ctx, "unix", path)
}

// servePprof answers as Go's pprof does, below /debug/pprof/, until the context ends.
func servePprof(ctx context.Context, l net.Listener) error {
	pages := http.NewServeMux()
	for path, page := range map[string]http.HandlerFunc{
		"": pprof.Index, "cmdline": pprof.Cmdline, "profile": pprof.Profile, "symbol": pprof.Symbol, "trace": pprof.Trace,
	} {
		pages.HandleFunc("/debug/pprof/"+path, page)
	}
	server := &http.Server{Handler: pages, ReadHeaderTimeout: 10 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() }) // a profile that is under way is given up
	defer stop()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
