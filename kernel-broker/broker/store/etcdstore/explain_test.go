// SPDX-License-Identifier: Apache-2.0

package etcdstore_test

import (
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store/etcdstore"
	"github.com/kernelbroker/kernelbroker/tests/support/etcdtest"
)

// listen accepts connections, and speaks TLS if there is a configuration. It serves nothing.
func listen(t *testing.T, config *tls.Config) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				if config == nil {
					_, _ = conn.Write([]byte("220 mail\r\n"))
					_, _ = conn.Read(make([]byte, 1))
					return
				}
				_, _ = tls.Server(conn, config).Read(make([]byte, 1))
			}()
		}
	}()
	return l.Addr().String()
}

// An administrator reads why etcd cannot be used, and what to do about it.
func TestUnreachableIsExplained(t *testing.T) {
	ours, theirs := etcdtest.NewAuthority(t), etcdtest.NewAuthority(t)
	pair := func(a *etcdtest.Authority, end time.Time, names ...string) []tls.Certificate {
		t.Helper()
		p, err := tls.LoadX509KeyPair(a.IssueUntil(t, end, t.TempDir(), "server", names...))
		if err != nil {
			t.Fatal(err)
		}
		return []tls.Certificate{p}
	}
	hour := time.Now().Add(time.Hour)
	good := pair(ours, hour, "127.0.0.1")
	verify := func(a *etcdtest.Authority) *tls.Config {
		return &tls.Config{Certificates: good, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: a.Pool()}
	}
	older := verify(theirs)
	older.MaxVersion = tls.VersionTLS12
	client := func() (*tls.Config, error) { return ours.Client(t), nil }
	for _, c := range []struct {
		name, endpoint, words string
		tls                   func() (*tls.Config, error)
	}{
		{"nothing", "http://127.0.0.1:1", "http://127.0.0.1:1: nothing listens there: start etcd, or correct etcd.endpoints", nil},
		{"no socket", "unix:///nonexistent/socket", "nothing listens there", nil},
		{"no host", "https://e1.invalid:2379", `this host knows no "e1.invalid"`, client},
		{"not etcd", "http://" + listen(t, nil), "it can be reached and does not serve", nil},
		{"TLS at http", "http://" + listen(t, &tls.Config{Certificates: good}), "it speaks TLS: write https:// into etcd.endpoints", nil},
		{"no TLS at https", "https://" + listen(t, nil), "it speaks no TLS: write http:// into etcd.endpoints", client},
		{"an authority that is not ours", "https://" + listen(t, &tls.Config{Certificates: pair(theirs, hour, "127.0.0.1")}), "name the file with that authority in etcd.ca", client},
		{"the system's authorities", "https://" + listen(t, &tls.Config{Certificates: good}), "name the file with that authority in etcd.ca", nil},
		{"another name", "https://" + listen(t, &tls.Config{Certificates: pair(ours, hour, "e1")}), `its certificate is not for "127.0.0.1"`, client},
		{"over", "https://" + listen(t, &tls.Config{Certificates: pair(ours, time.Now().Add(-time.Hour), "127.0.0.1")}), "its certificate is over", client},
		{"refused", "https://" + listen(t, verify(theirs)), "it refuses this client: set etcd.certificate and etcd.key", client},
		{"refused in the handshake", "https://" + listen(t, older), "it refuses this client", client},
		{"no certificate", "https://" + listen(t, verify(ours)), "it refuses this client", func() (*tls.Config, error) { return &tls.Config{RootCAs: ours.Pool()}, nil }},
		{"files", "https://" + listen(t, verify(ours)), "file is away", func() (*tls.Config, error) { return nil, errors.New("file is away") }},
		{"nothing wrong with TLS", "https://" + listen(t, verify(ours)), "it can be reached and does not serve", client},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s, err := etcdstore.Open(t.Context(), etcdstore.Config{Endpoints: []string{c.endpoint}, Cluster: "a", TLS: c.tls, Timeout: time.Second, Logger: quiet})
			if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), c.words) {
				t.Errorf("%v, %v, want %q", s, err, c.words)
			}
		})
	}
}
