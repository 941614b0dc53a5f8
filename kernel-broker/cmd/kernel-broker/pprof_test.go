// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The socket is its owner's from the first moment, shows profiles and nothing else, and ends with the broker.
func TestPprof(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run", "pprof.sock")
	l, err := listenPprof(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("socket: %v, %v", info.Mode(), err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- servePprof(ctx, l) }()
	client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}}
	for page, words := range map[string]string{
		"/debug/pprof/heap?debug=1": "heap profile:", "/debug/pprof/goroutine?debug=1": "servePprof",
		"/debug/pprof/profile?seconds=1": "\x1f\x8b", "/": "404",
	} {
		response, err := client.Get("http://broker" + page)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || !strings.Contains(string(text), words) {
			t.Errorf("%s: %.200q, %v", page, text, err)
		}
	}
	if _, err := listenPprof(t.Context(), path); err == nil || !strings.Contains(err.Error(), "another broker") {
		t.Errorf("a second broker: %v", err)
	}
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

func TestPprofIsOffUnlessAsked(t *testing.T) {
	if got := defaults().PprofSocket; got != "" {
		t.Errorf("default %q", got)
	}
	for _, text := range []string{"pprof_socket: 127.0.0.1:6060", "pprof_socket: /run/b.sock\nsocket: /run/b.sock"} {
		if _, err := load(write(t, text)); err == nil || !strings.Contains(err.Error(), "pprof_socket") {
			t.Errorf("%s: %v", text, err)
		}
	}
	if _, err := load(write(t, "pprof_socket: /run/kernel-broker/pprof.sock")); err != nil {
		t.Error(err)
	}
}
