// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/graph"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/pipeline"
	"github.com/kernelbroker/kernelbroker/kernel-broker/report/runreport"
	"github.com/kernelbroker/kernelbroker/kernel-broker/web"
)

func (a *app) webCommand() *cobra.Command {
	var port uint16
	var socket string
	c := a.command("web", "Show nodes, switches, kernels and runs in a browser", cobra.NoArgs, func(ctx context.Context, _ []string) error {
		return a.web(ctx, port, socket)
	})
	c.Flags().Uint16Var(&port, "port", 0, "`number` of the port on 127.0.0.1 (default: any that is free)")
	c.Flags().StringVar(&socket, "socket", "", "serve at this `path` for a proxy that decides who may look, and not on 127.0.0.1")
	return c
}

func (a *app) web(ctx context.Context, port uint16, socket string) error {
	if port != 0 && socket != "" {
		return usageError{errors.New("--port and --socket exclude each other")}
	}
	conn, err := a.dial()
	if err != nil {
		return err
	}
	listener, err := listenWeb(ctx, port, socket)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(a.Stderr, nil))
	options := web.Options{Version: a.Version, Log: log, Source: web.Source{
		Broker: conn, Address: a.address, Document: a.content, Builds: a.newestBuilds, Gain: versionGain,
		Report: func(ctx context.Context, r *api.Run) (runreport.Report, error) { return a.report(ctx, r) },
	}}
	server := &http.Server{ReadHeaderTimeout: callLimit, IdleTimeout: time.Minute, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn)}
	if socket == "" {
		options.Guard = web.NewGuard(os.Getuid(), web.Owner, func(key string) { a.sayLink(listener.Addr(), key) })
		server.ConnContext = options.Guard.Connection
	} else {
		a.say("serving what %s may see at %s, to all who may write to it; Ctrl-C ends it", userText(os.Getuid()), socket)
	}
	server.Handler = web.New(options).Handler()
	return serveWeb(ctx, server, listener)
}

// sayLink prints where the page is. The key is not a secret for long: it admits once, and only this user.
func (a *app) sayLink(at net.Addr, key string) {
	_, _ = fmt.Fprintf(a.Stdout, "http://%s/open?key=%s\n", at, key)
	host, err := os.Hostname()
	if err != nil {
		host = "HOST"
	}
	_, port, _ := net.SplitHostPort(at.String())
	a.say("This link opens the page once, with your rights. From another computer first: ssh -L %s:%s %s", port, at, host)
}

func userText(uid int) string { return fmt.Sprintf("uid %d", uid) }

func listenWeb(ctx context.Context, port uint16, socket string) (net.Listener, error) {
	if socket == "" {
		return (&net.ListenConfig{}).Listen(ctx, "tcp4", fmt.Sprintf("127.0.0.1:%d", port))
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", socket)
	if err != nil {
		return nil, fmt.Errorf("%w (remove a socket that no kernelctl serves any more)", err)
	}
	return listener, nil
}

// serveWeb serves until the context ends. Streams end with it.
func serveWeb(ctx context.Context, server *http.Server, listener net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	server.BaseContext = func(net.Listener) context.Context { return ctx }
	done := make(chan error, 1)
	go func() {
		<-ctx.Done()
		late, stop := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer stop()
		done <- server.Shutdown(late)
	}()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		cancel()
		return errors.Join(err, <-done)
	}
	if err := <-done; err != nil {
		return server.Close()
	}
	return nil
}

// newestBuilds are the newest builds of this user's kernels on this host, one of each kernel.
func (a *app) newestBuilds() ([]graph.Status, error) {
	cache, err := a.cacheDir()
	if err != nil {
		return nil, err
	}
	store := pipeline.StoreIn(cache)
	entries, err := os.ReadDir(filepath.Join(store.Dir, "builds"))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []graph.Status
	for _, entry := range entries {
		status, err := store.Status(entry.Name(), "")
		if errors.Is(err, kb.ErrNotFound) {
			continue // killed before it wrote any
		}
		if err != nil {
			// One of another version of kernelctl hides no other.
			status = graph.Status{Name: entry.Name(), State: "unreadable", Error: err.Error()}
		}
		all = append(all, status)
	}
	return all, nil
}
