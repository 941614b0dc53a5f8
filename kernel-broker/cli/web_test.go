// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/graph"
)

// opened is kernelctl web, until the test ends.
type opened struct {
	t    *testing.T
	out  *bufio.Reader
	stop func() (code int, stderr string)
}

func (f *fixture) web(arguments ...string) *opened {
	f.t.Helper()
	ctx, cancel := context.WithCancel(f.t.Context())
	out, in := io.Pipe()
	var stderr bytes.Buffer
	code := exitOK
	var running sync.WaitGroup
	running.Go(func() {
		code = Run(ctx, Invocation{Args: append([]string{"web"}, arguments...), Stdout: in, Stderr: &stderr, Version: "1.2.3",
			Getenv: func(name string) string {
				return map[string]string{addressVariable: "unix://" + f.socket, "KB_CACHE": f.t.TempDir()}[name]
			}})
		_ = in.Close() // a pipe, whose Close does not fail
	})
	stop := sync.OnceValues(func() (int, string) {
		cancel()
		go func() { _, _ = io.Copy(io.Discard, out) }() // a link that nobody reads
		running.Wait()
		return code, stderr.String()
	})
	f.t.Cleanup(func() { stop() })
	return &opened{f.t, bufio.NewReader(out), stop}
}

// link is the next one that it prints.
func (o *opened) link() string {
	o.t.Helper()
	line, err := o.out.ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "http://127.0.0.1:") {
		o.t.Fatalf("no link, but %q, %v", line, err)
	}
	return strings.TrimSpace(line)
}

func read(t *testing.T, client *http.Client, address string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	w, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = w.Body.Close() }()
	text, err := io.ReadAll(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	return w.StatusCode, string(text)
}

// TestWeb opens the page by its link, over TCP, with the real check of whose connection it is.
func TestWeb(t *testing.T) {
	f := newFixture(t)
	f.nodes.list, f.jobs.list = someNodes(), someJobs()
	f.profiled()
	f.runs.list[1].User, f.runs.list[1].Nodes[0].Files = "bob", nil // as the broker tells another user
	o := f.web()
	link := o.link()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	mine := &http.Client{Jar: jar}
	next := make(chan string)
	go func() { next <- o.link() }()
	if code, text := read(t, mine, link); code != http.StatusOK || !strings.Contains(text, "2 nodes") {
		t.Errorf("the link: %d %.500s", code, text)
	}
	if another := <-next; another == link {
		t.Errorf("the next link is %s, too", another)
	}
	site, _, _ := strings.Cut(link, "/open")
	for path, words := range map[string]string{"/jobs/14": "Back to stock", "/runs/7": "Report with flame graph", "/runs/7/report": "vfs_write", "/builds": "kernelctl kernel build NAME",
		"/health": "revision 7"} {
		if code, text := read(t, mine, site+path); code != http.StatusOK || !strings.Contains(text, words) {
			t.Errorf("%s: %d %.500s", path, code, text)
		}
	}
	if code, text := read(t, mine, site+"/runs/8/report"); code != http.StatusForbidden || !strings.Contains(text, "they are for user bob") {
		t.Errorf("another user's run: %d %.500s", code, text)
	}
	if code, _ := read(t, &http.Client{}, site+"/"); code != http.StatusUnauthorized {
		t.Errorf("without the cookie: %d", code)
	}
	if code, _ := read(t, &http.Client{}, link); code != http.StatusForbidden {
		t.Errorf("the link once more: %d", code)
	}
	if code, stderr := o.stop(); code != 0 || !strings.Contains(stderr, "ssh -L") {
		t.Errorf("exit %d: %s", code, stderr)
	}
}

// Behind a proxy there is no link: the socket's permissions say who may connect.
func TestWebForAProxy(t *testing.T) {
	f := newFixture(t)
	f.nodes.list = someNodes()
	socket := filepath.Join(t.TempDir(), "web.sock")
	o := f.web("--socket", socket)
	proxied := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		for {
			c, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
			if err == nil || ctx.Err() != nil {
				return c, err
			}
		}
	}}}
	if code, text := read(t, proxied, "http://kernels.example.org/"); code != http.StatusOK || !strings.Contains(text, "2 nodes") {
		t.Errorf("%d %.500s", code, text)
	}
	if code, stderr := o.stop(); code != 0 || !strings.Contains(stderr, "to all who may write to it") {
		t.Errorf("exit %d: %s", code, stderr)
	}
	if err := os.WriteFile(socket, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f.must(1, "remove a socket that no kernelctl serves any more", "web", "--socket", socket)
	f.must(2, "--port and --socket exclude each other", "web", "--socket", socket, "--port", "1")
}

// A build that cannot be read hides no other.
func TestNewestBuilds(t *testing.T) {
	cache := t.TempDir()
	for path, text := range map[string]string{"redis/2/status.json": `{"format":2,"name":"redis","state":"failed"}`, "redis/1/status.json": `{"format":2,"name":"redis","state":"done"}`,
		"mitgcm/1/status.json": `{"format":99}`, "nginx/1/lock": ""} {
		at := filepath.Join(cache, "graph", "builds", path)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	all, err := (&app{cache: cache}).newestBuilds()
	if err != nil || len(all) != 2 || all[0].State != "unreadable" || !strings.Contains(all[0].Error, "format 99") || all[1].State != graph.Failed {
		t.Errorf("%+v, %v", all, err)
	}
}
