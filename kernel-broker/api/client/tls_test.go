// SPDX-License-Identifier: Apache-2.0

package client

import (
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/mtls"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/pki"
	"github.com/kernelbroker/kernelbroker/tests/support/catest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// secured serves a health check as a broker of cluster "lab" does, and returns
// its address and the file of its authority.
func secured(t *testing.T) (address, authorities string) {
	t.Helper()
	dir := t.TempDir()
	authorities = filepath.Join(dir, "ca.pem")
	authority := catest.Open(t, pki.Options{Public: authorities, Cluster: "lab", Host: "ctl", Lifetime: time.Hour})
	accept := func(mtls.Peer) error { return errors.New("no node is expected") }
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(mtls.ServerConfig(authority, "lab", accept))))
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := server.Serve(listener); err != nil {
			slog.Error("server", "error", err)
		}
	})
	t.Cleanup(func() { server.Stop(); serving.Wait() })
	return listener.Addr().String(), authorities
}

// Of several addresses the first one that answers is the broker's: with TLS over the network, without it on the socket.
func TestSeveralAddresses(t *testing.T) {
	address, authorities := secured(t)
	dead, err := net.Listen("tcp", "127.0.0.1:0") // nobody listens there afterwards
	if err != nil {
		t.Fatal(err)
	}
	if err := dead.Close(); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(t.TempDir(), "broker.sock")
	local, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := server.Serve(local); err != nil {
			slog.Error("server", "error", err)
		}
	})
	stop := sync.OnceFunc(func() { server.Stop(); serving.Wait() })
	t.Cleanup(stop)
	conn, err := Dial(dead.Addr().String()+", unix://"+socket+","+address, Trust{CA: authorities})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	check := func() (string, error) {
		var from peer.Peer
		_, err := grpc_health_v1.NewHealthClient(conn).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{}, grpc.Peer(&from), grpc.WaitForReady(true))
		if err != nil {
			return "", err
		}
		return from.Addr.String(), nil
	}
	if from, err := check(); err != nil || from != socket {
		t.Errorf("the socket: %q, %v", from, err)
	}
	stop()
	from, err := check()
	for end := time.Now().Add(10 * time.Second); err != nil && time.Now().Before(end); from, err = check() {
		time.Sleep(10 * time.Millisecond) // the connection ends in the middle of a call
	}
	if err != nil || from != address {
		t.Errorf("the next one: %q, %v", from, err)
	}
	for list, local := range map[string]bool{socket: true, "unix:" + socket: true, socket + ",ctl:1": false, "ctl:1": false, "nonsense": false} {
		if Local(list) != local {
			t.Errorf("Local(%q) = %v", list, !local)
		}
	}
	for _, list := range []string{"", ",", socket + ",", "ctl:1,nonsense"} {
		if _, err := Dial(list, Trust{}); !errors.Is(err, kb.ErrInvalid) {
			t.Errorf("Dial(%q): %v", list, err)
		}
	}
}

func TestBrokerIsAuthenticated(t *testing.T) {
	address, authorities := secured(t)
	_, foreign := secured(t)
	for _, c := range []struct {
		name  string
		trust Trust
		code  codes.Code
	}{
		{"its authority", Trust{CA: authorities}, codes.OK},
		{"its cluster", Trust{CA: authorities, Cluster: "lab"}, codes.OK},
		{"another cluster's broker", Trust{CA: authorities, Cluster: "prod"}, codes.Unavailable},
		{"another authority", Trust{CA: foreign}, codes.Unavailable},
		{"no file", Trust{CA: filepath.Join(t.TempDir(), "none")}, codes.Unavailable},
		{"without TLS", Trust{}, codes.Unavailable},
	} {
		conn, err := Dial(address, c.trust)
		if err != nil {
			t.Fatal(err)
		}
		_, err = grpc_health_v1.NewHealthClient(conn).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{})
		if status.Code(err) != c.code {
			t.Errorf("%s: %v", c.name, err)
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}
	// A file that is replaced counts from the next connection on.
	trust := Trust{CA: filepath.Join(t.TempDir(), "ca.pem")}
	for _, step := range []struct {
		file string
		code codes.Code
	}{{foreign, codes.Unavailable}, {authorities, codes.OK}} {
		text, err := os.ReadFile(step.file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(trust.CA, text, 0o644); err != nil {
			t.Fatal(err)
		}
		conn, err := Dial(address, trust)
		if err != nil {
			t.Fatal(err)
		}
		_, err = grpc_health_v1.NewHealthClient(conn).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{})
		if status.Code(err) != step.code {
			t.Errorf("%s: %v", step.file, err)
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}
}
