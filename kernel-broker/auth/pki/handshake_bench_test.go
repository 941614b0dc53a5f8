// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/tls"
	"net"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/mtls"
)

// BenchmarkHandshake is what a node's handshake costs both ends, and of that the
// broker's CPU time: with Go's key exchange and with X25519, full and resumed.
func BenchmarkHandshake(b *testing.B) {
	for _, c := range []struct {
		name    string
		curves  []tls.CurveID
		resumed bool
	}{
		{"default/full", nil, false},
		{"x25519/full", []tls.CurveID{tls.X25519}, false},
		{"default/resumed", nil, true},
		{"x25519/resumed", []tls.CurveID{tls.X25519}, true},
	} {
		b.Run(c.name, func(b *testing.B) {
			s := newSite(b)
			node := s.enrol("n1")
			server, client := s.server(), mtls.ClientConfig(node, "lab")
			server.CurvePreferences, client.CurvePreferences = c.curves, c.curves
			client.ServerName = "broker"
			if !c.resumed {
				client.ClientSessionCache = nil
			}
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			var spent atomic.Int64
			served := make(chan struct{})
			go func() {
				defer close(served)
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				for first := true; ; first = false {
					conn, err := listener.Accept()
					if err != nil {
						return
					}
					before := threadTime(b)
					secured := tls.Server(conn, server)
					err = secured.HandshakeContext(b.Context())
					spent.Add(int64(threadTime(b) - before))
					if err != nil || secured.ConnectionState().DidResume != (c.resumed && !first) {
						b.Errorf("handshake: %v, resumed: %v", err, secured.ConnectionState().DidResume)
					}
					_, _ = secured.Write([]byte("x")) // the client reads its ticket before it
					_ = conn.Close()
				}
			}()
			once := func() {
				conn, err := net.Dial("tcp", listener.Addr().String())
				if err != nil {
					b.Fatal(err)
				}
				secured := tls.Client(conn, client)
				if _, err := secured.Read(make([]byte, 1)); err != nil {
					b.Error(err)
				}
				_ = conn.Close()
			}
			once() // has the ticket
			before := spent.Load()
			for b.Loop() {
				once()
			}
			took := spent.Load() - before
			_ = listener.Close()
			<-served
			b.ReportMetric(float64(took)/1e3/float64(b.N), "broker-us/op")
		})
	}
}

// threadTime is the CPU time of this thread.
func threadTime(b *testing.B) time.Duration {
	var r unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &r); err != nil {
		b.Error(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
