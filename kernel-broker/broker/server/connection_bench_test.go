// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/link"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/mtls"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/pki"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/catalog"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/controller"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/server"
	"github.com/kernelbroker/kernelbroker/tests/support/catest"
	"github.com/kernelbroker/kernelbroker/tests/support/memstore"
)

// BenchmarkThousandAgents is what an agent's connection and stream take of memory when
// all is quiet, both ends together, by heap and by stacks.
func BenchmarkThousandAgents(b *testing.B) {
	const agents = 1000
	quiet := slog.New(slog.DiscardHandler)
	kept := memstore.New()
	defer func() { _ = kept.Close() }()
	authority := catest.Open(b, pki.Options{Cluster: "lab", Host: "ctl", Lifetime: time.Hour})
	registry, err := pki.OpenRegistry(b.Context(), pki.RegistryOptions{Store: kept, Cluster: "lab", Authority: authority, Log: quiet})
	if err != nil {
		b.Fatal(err)
	}
	ctl, err := controller.New(b.Context(), controller.Options{Store: kept, Catalog: catalog.New(catalog.Options{Store: kept, Log: quiet}), Slurm: &oneJob{}, Log: quiet})
	if err != nil {
		b.Fatal(err)
	}
	f := serve(b, func(o *server.Options) {
		o.TLS, o.Log = &server.TLS{Source: authority, Registry: registry}, quiet
		o.Limits = server.DefaultLimits()
		o.Limits.PeerConnections = o.Limits.Connections
	}, func(s *server.Server) { api.RegisterNodeServiceServer(s, server.NewNodeService(ctl, always{})) })
	var nodes []mtls.Source
	for n := range agents {
		nodes = append(nodes, certified(b, registry, fmt.Sprint("n", n)))
	}
	for b.Loop() {
		before := memoryInUse()
		ctx, cancel := context.WithCancel(b.Context())
		var running sync.WaitGroup
		var links []*link.Link
		for n, node := range nodes {
			l, err := link.New(link.Options{Broker: f.address, Source: node, Log: quiet, Snapshot: func(string) error { return nil }, Hello: func() kb.Hello {
				return kb.Hello{Node: fmt.Sprint("n", n), Boot: kb.Boot{BootID: bootID, Release: "6.1.0"}, Inventory: kb.Inventory{Architecture: "x86_64"}}
			}})
			if err != nil {
				b.Fatal(err)
			}
			links = append(links, l)
			running.Go(func() { l.Run(ctx) })
		}
		for _, l := range links {
			for !l.Status().Connected {
				<-l.Changed()
			}
		}
		time.Sleep(3 * time.Second) // for what is still under way
		after := memoryInUse()
		b.ReportMetric((after.heap-before.heap)/agents, "heap-B/agent")
		b.ReportMetric((after.stack-before.stack)/agents, "stack-B/agent")
		cancel()
		running.Wait()
		for _, l := range links {
			if err := l.Close(); err != nil {
				b.Error(err)
			}
		}
	}
}

type credentialed struct {
	pair        *tls.Certificate
	authorities []*x509.Certificate
}

func (c credentialed) Certificate() (*tls.Certificate, error)    { return c.pair, nil }
func (c credentialed) Authorities() ([]*x509.Certificate, error) { return c.authorities, nil }

// certified makes a node with a certificate.
func certified(b *testing.B, registry *pki.Registry, node string) mtls.Source {
	b.Helper()
	key, err := mtls.NewKey()
	if err != nil {
		b.Fatal(err)
	}
	request, err := mtls.NewRequest(key)
	if err != nil {
		b.Fatal(err)
	}
	token, _, err := registry.CreateToken(b.Context(), node, time.Hour, "test")
	if err != nil {
		b.Fatal(err)
	}
	got, err := registry.Enrol(b.Context(), node, token.Secret, request)
	if err != nil {
		b.Fatal(err)
	}
	pair := &tls.Certificate{PrivateKey: key, Leaf: got.Chain[0]}
	for _, c := range got.Chain {
		pair.Certificate = append(pair.Certificate, c.Raw)
	}
	return credentialed{pair, got.Authorities}
}

type inUse struct{ heap, stack float64 }

func memoryInUse() inUse {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return inUse{float64(m.HeapAlloc), float64(m.StackInuse)}
}
