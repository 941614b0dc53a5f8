// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/mtls"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/pki"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/artifact"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/digest"
	"github.com/kernelbroker/kernelbroker/tests/support/catest"
	"github.com/kernelbroker/kernelbroker/tests/support/memstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var quiet = slog.New(slog.DiscardHandler)

// cluster is some brokers with one authority.
type cluster struct {
	t         *testing.T
	authority *pki.Authority
	mu        sync.Mutex
	announced []string
	logs      bytes.Buffer
}

func newCluster(t *testing.T) *cluster {
	return &cluster{t: t, authority: catest.Open(t, pki.Options{Cluster: "lab", Host: "ctl", Lifetime: time.Hour})}
}

func (c *cluster) all(context.Context) ([]string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.announced...), nil
}

func (c *cluster) announce(p Peer) {
	c.t.Helper()
	text, err := p.Text()
	if err != nil {
		c.t.Fatal(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.announced = append(c.announced, text)
}

// broker has an empty store; it serves nobody yet.
func (c *cluster) broker(host string) *Exchange {
	c.t.Helper()
	files, err := artifact.OpenStore(filepath.Join(c.t.TempDir(), "artifacts"), artifact.StoreOptions{Limit: 1 << 30, Log: quiet})
	if err != nil {
		c.t.Fatal(err)
	}
	e := New(Options{Files: files, ID: host, Announced: c.all, TLS: mtls.BrokerConfig(c.authority, "lab"), MostBytes: 8 << 20,
		Log: slog.New(slog.NewTextHandler(&c.logs, nil))})
	c.t.Cleanup(e.Close)
	return e
}

// serve has a broker serve, and announces it.
func (c *cluster) serve(e *Exchange) Peer {
	c.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- e.Serve(ctx, l) }()
	c.t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			c.t.Error(err)
		}
	})
	p := Peer{Host: e.o.ID, Address: l.Addr().String(), ID: e.o.ID}
	c.announce(p)
	return p
}

// fake serves what a handler says, as a broker.
func (c *cluster) fake(host string, h http.HandlerFunc) {
	c.t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", mtls.BrokerConfig(c.authority, "lab"))
	if err != nil {
		c.t.Fatal(err)
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute, ErrorLog: slog.NewLogLogger(quiet.Handler(), slog.LevelInfo)}
	done := make(chan struct{})
	go func() { _ = server.Serve(l); close(done) }()
	c.t.Cleanup(func() { _ = server.Close(); <-done })
	c.announce(Peer{Host: host, Address: l.Addr().String(), ID: host})
}

func put(t *testing.T, e *Exchange, text []byte) string {
	t.Helper()
	name := digest.Of(text)
	if _, err := e.Put(t.Context(), name, uint64(len(text)), bytes.NewReader(text)); err != nil {
		t.Fatal(err)
	}
	return name
}

func has(t *testing.T, e *Exchange, name string, want []byte) {
	t.Helper()
	file, err := e.Open(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if got, err := io.ReadAll(file); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes, %v; want %d", len(got), err, len(want))
	}
}

// none reports that nothing of an artifact is in the store, also no part.
func none(t *testing.T, e *Exchange, name string) {
	t.Helper()
	if _, err := e.Stat(name); !errors.Is(err, kb.ErrNotFound) {
		t.Errorf("%s is stored: %v", name, err)
	}
}

var image = bytes.Repeat([]byte("kernel "), 100_000)

// What a broker lacks comes from a peer once, by many who ask, and stays.
func TestWhatIsMissingComesFromAPeer(t *testing.T) {
	c := newCluster(t)
	one, two := c.broker("ctl1"), c.broker("ctl2")
	name := put(t, one, image)
	first := c.serve(one)
	c.serve(two)
	var group sync.WaitGroup
	for range 20 {
		group.Go(func() { has(t, two, name, image) })
	}
	group.Wait()
	if _, err := two.Stat(name); err != nil {
		t.Error(err)
	}
	files, err := two.ListOf(t.Context(), first)
	if err != nil || len(files) != 1 || files[name] != uint64(len(image)) {
		t.Errorf("%v, %v", files, err)
	}
	gone := digest.Of([]byte("gone"))
	_, err = two.Open(t.Context(), gone)
	if !errors.Is(err, kb.ErrNotFound) || !strings.Contains(err.Error(), "nor on those of the other brokers that run, ctl1") {
		t.Errorf("%v", err)
	}
	if _, err := two.Open(t.Context(), "../../etc/passwd"); !errors.Is(err, kb.ErrInvalid) {
		t.Errorf("%v", err)
	}
	if missing := two.Copy(t.Context(), []string{gone, name}); missing != 1 {
		t.Errorf("%d missing", missing)
	}
	alone := New(Options{Files: two.Store, Log: quiet})
	if _, err := alone.Open(t.Context(), gone); !errors.Is(err, kb.ErrNotFound) || !strings.Contains(err.Error(), "no other broker runs") {
		t.Errorf("%v", err)
	}
}

// A damaged artifact is replaced by a peer's.
func TestADamagedOneIsReplaced(t *testing.T) {
	c := newCluster(t)
	one, two := c.broker("ctl1"), c.broker("ctl2")
	name := put(t, one, image)
	if put(t, two, image) != name {
		t.Fatal("two names")
	}
	c.serve(one)
	file, err := two.Store.Open(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	path := file.Name()
	if err := errors.Join(file.Close(), os.Chmod(path, 0o600), os.WriteFile(path, image[1:], 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := two.Check(t.Context(), name); err != nil {
		t.Error(err)
	}
	has(t, two, name, image)
	if err := two.Check(t.Context(), digest.Of(nil)); !errors.Is(err, kb.ErrNotFound) {
		t.Errorf("one that nobody has: %v", err)
	}
}

// Wrong bytes, too many, or none that end are refused, and the next peer is asked.
func TestAPeerThatIsWrong(t *testing.T) {
	name := digest.Of(image)
	for what, c := range map[string]struct {
		serve http.HandlerFunc
		says  string
	}{
		"wrong bytes": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", fmt.Sprint(len(image)))
			_, _ = w.Write(bytes.Repeat([]byte("x"), len(image)))
		}, "content does not match its digest"},
		"no length": {func(w http.ResponseWriter, _ *http.Request) { w.(http.Flusher).Flush(); _, _ = w.Write(image) }, "it answers 200"},
		"too long":  {func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", fmt.Sprint(9<<20)) }, "at most 8388608 are allowed"},
		"moved": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://127.0.0.1:1/", http.StatusMovedPermanently)
		}, "it answers 301"},
		"an error": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }, "it answers 500"},
		"goes on with others": {func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Range") != "" {
				w.Header().Set("Content-Range", fmt.Sprintf("bytes 0-9/%d", len(image)))
				w.Header().Set("Content-Length", "10")
				w.WriteHeader(http.StatusPartialContent)
				return
			}
			w.Header().Set("Content-Length", fmt.Sprint(len(image)))
			_, _ = w.Write(image[:1000])
		}, "goes on with other bytes"},
	} {
		t.Run(what, func(t *testing.T) {
			cl := newCluster(t)
			two := cl.broker("ctl2")
			cl.fake("ctl0", c.serve)
			err := two.Fetch(t.Context(), name)
			if err == nil || errors.Is(err, kb.ErrNotFound) || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "broker ctl0") {
				t.Errorf("%v", err)
			}
			none(t, two, name)
			one := cl.broker("ctl1")
			put(t, one, image)
			cl.serve(one)
			has(t, two, name, image)
		})
	}
}

// A transfer that breaks goes on where it was, and ends when it breaks too often.
func TestATransferThatBreaksGoesOn(t *testing.T) {
	for _, c := range []struct {
		breaks int32
		works  bool
	}{{tries - 1, true}, {tries, false}} {
		cl := newCluster(t)
		two, name := cl.broker("ctl2"), digest.Of(image)
		var asked, sent atomic.Int32
		cl.fake("ctl1", func(w http.ResponseWriter, r *http.Request) {
			from := 0
			if text := r.Header.Get("Range"); text != "" {
				_, _ = fmt.Sscanf(text, "bytes=%d-", &from)
				w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(image)-1, len(image)))
			}
			w.Header().Set("Content-Length", fmt.Sprint(len(image)-from))
			if from > 0 {
				w.WriteHeader(http.StatusPartialContent)
			}
			part := image[from:]
			if asked.Add(1) <= c.breaks {
				part = part[:100_000]
			}
			n, _ := w.Write(part)
			sent.Add(int32(n))
		})
		err := two.Fetch(t.Context(), name)
		if (err == nil) != c.works {
			t.Errorf("%d breaks: %v", c.breaks, err)
		}
		if c.works {
			has(t, two, name, image)
			if int(sent.Load()) != len(image) {
				t.Errorf("%d bytes were sent of %d", sent.Load(), len(image))
			}
		} else {
			none(t, two, name)
		}
	}
}

// stranger is a source of somebody who is no broker of the cluster.
type stranger struct {
	pair        *tls.Certificate
	authorities []*x509.Certificate
}

func (s stranger) Certificate() (*tls.Certificate, error)    { return s.pair, nil }
func (s stranger) Authorities() ([]*x509.Certificate, error) { return s.authorities, nil }

// Only a broker of the cluster is answered, and only one is asked.
func TestOnlyBrokersMeet(t *testing.T) {
	c := newCluster(t)
	one := c.broker("ctl1")
	name := put(t, one, image)
	p := c.serve(one)
	trusted, err := c.authority.Authorities()
	if err != nil {
		t.Fatal(err)
	}
	registry, err := pki.OpenRegistry(t.Context(), pki.RegistryOptions{Store: memstore.New(), Cluster: "lab", Authority: c.authority, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	token, _, err := registry.CreateToken(t.Context(), "n1", 0, "test")
	if err != nil {
		t.Fatal(err)
	}
	key, err := mtls.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	request, err := mtls.NewRequest(key)
	if err != nil {
		t.Fatal(err)
	}
	credentials, err := registry.Enrol(t.Context(), "n1", token.Secret, request)
	if err != nil {
		t.Fatal(err)
	}
	node := &tls.Certificate{PrivateKey: key, Leaf: credentials.Chain[0]}
	for _, link := range credentials.Chain {
		node.Certificate = append(node.Certificate, link.Raw)
	}
	foreign, err := catest.Open(t, pki.Options{Cluster: "lab", Host: "ctl", Lifetime: time.Hour}).Certificate()
	if err != nil {
		t.Fatal(err)
	}
	for who, pair := range map[string]*tls.Certificate{"a node": node, "another authority's broker": foreign} {
		config := mtls.BrokerConfig(stranger{pair, trusted}, "lab")
		asks := New(Options{Files: c.broker("x").Store, ID: "x", Announced: c.all, TLS: config, MostBytes: 8 << 20, Log: quiet})
		if err := asks.Fetch(t.Context(), name); err == nil || errors.Is(err, kb.ErrNotFound) || !strings.Contains(err.Error(), "remote error: tls") {
			t.Errorf("%s is answered: %v", who, err)
		}
		none(t, asks, name)
		asks.Close()
	}
	// Nobody without a certificate.
	plain := mtls.ClientConfig(stranger{authorities: trusted}, "lab")
	plain.NextProtos = []string{"http/1.1"}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: plain}}
	defer client.CloseIdleConnections()
	if answer, err := client.Get(artifactURL(p, name)); err == nil {
		t.Errorf("%s to somebody without a certificate, %v", answer.Status, answer.Body.Close())
	}

	// A server that is no broker gets no question.
	asked := false
	cl := &cluster{t: t, authority: c.authority}
	l, err := tls.Listen("tcp", "127.0.0.1:0", func() *tls.Config {
		config := mtls.BrokerConfig(stranger{node, trusted}, "lab")
		config.ClientAuth = tls.NoClientCert
		config.VerifyConnection = nil
		return config
	}())
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { asked = true; _, _ = w.Write(image) }), ReadHeaderTimeout: time.Minute, ErrorLog: slog.NewLogLogger(quiet.Handler(), slog.LevelInfo)}
	done := make(chan struct{})
	go func() { _ = server.Serve(l); close(done) }()
	cl.announce(Peer{Host: "n1", Address: l.Addr().String(), ID: "n1"})
	if err := cl.broker("ctl2").Fetch(t.Context(), name); err == nil || !strings.Contains(err.Error(), "incompatible key usage") {
		t.Errorf("a node that answers: %v", err)
	}
	_ = server.Close()
	<-done
	if asked {
		t.Error("a node was asked")
	}
}

// An announcement that names no broker's address is left out.
func TestAnnouncements(t *testing.T) {
	c := newCluster(t)
	c.announced = []string{"", "{}", `{"host":"ctl1","address":"ctl1"}`, `{"host":"ctl1","address":"ctl1:7442/x?:1"}`, `{"host":"c t","address":"ctl1:7442"}`,
		`{"host":"ctl2","address":"[fd00::2]:7442","id":"b"}`, `{"host":"ctl1","address":"ctl1:7442","id":"a"}`, `{"host":"own","address":"own:7442","id":"own"}`}
	others, err := c.broker("own").Others(t.Context())
	if err != nil || len(others) != 2 || others[0].Host != "ctl1" || others[1].Address != "[fd00::2]:7442" {
		t.Errorf("%+v, %v", others, err)
	}
}

func TestAListThatIsWrong(t *testing.T) {
	for _, text := range []string{"x\n", digest.Of(nil) + " -1\n", digest.Of(nil) + "\n", "../../x 7\n", strings.Repeat("x", 70_000)} {
		c := newCluster(t)
		c.fake("ctl1", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) })
		e := c.broker("ctl2")
		others, err := e.Others(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if files, err := e.ListOf(t.Context(), others[0]); err == nil {
			t.Errorf("%.40q: %v", text, files)
		}
	}
}
