// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/pki"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/catalog"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/controller"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/history"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/metrics"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/server"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store/etcdstore"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/cache"
)

// How long a scrape's answers are kept that cost the store more than a key: somebody may scrape often.
const (
	keepCatalog      = 15 * time.Second
	keepCertificates = 10 * time.Minute
)

// validateMetrics looks at the address.
func (c config) validateMetrics() error {
	if c.Metrics.Listen == "" {
		return nil
	}
	if _, _, err := net.SplitHostPort(c.Metrics.Listen); err != nil {
		return fmt.Errorf("metrics.listen: %w (127.0.0.1:7441, for example)", err)
	}
	return nil
}

// watch has the figures of the state asked at each scrape.
func watch(m *metrics.Metrics, c config, ctl *controller.Controller, profiles *catalog.Catalog, kept *etcdstore.Store, events *history.Journal, secured *server.TLS) {
	var known cache.Cache[struct{}, []kb.Profile]
	quota := c.Etcd.QuotaBytes
	if len(c.Etcd.Endpoints) > 0 {
		quota = 0 // a site's etcd has its own
	}
	m.Watch(metrics.State{
		QuotaBytes: quota,
		Tally:      ctl.Tally, StoreBytes: kept.Size, Events: events.Stats, Certificates: certificatesOf(secured),
		Profiles: func(ctx context.Context) ([]kb.Profile, error) {
			return known.Get(ctx, struct{}{}, func(ctx context.Context) ([]kb.Profile, time.Duration, error) {
				list, err := profiles.List(ctx)
				return list, keepCatalog, err
			})
		},
	})
}

// certificatesOf tells when the broker's certificate, the authority's and the first of the nodes' end; nil where TLS is off.
func certificatesOf(secured *server.TLS) func(context.Context) (map[string]time.Time, error) {
	if secured == nil {
		return nil
	}
	var known cache.Cache[struct{}, map[string]time.Time]
	return func(ctx context.Context) (map[string]time.Time, error) {
		return known.Get(ctx, struct{}{}, func(ctx context.Context) (map[string]time.Time, time.Duration, error) {
			ends, err := certificateEnds(ctx, secured)
			return ends, keepCertificates, err
		})
	}
}

func certificateEnds(ctx context.Context, secured *server.TLS) (map[string]time.Time, error) {
	ends := map[string]time.Time{}
	first := func(name string, end time.Time) {
		if known, has := ends[name]; !has || end.Before(known) {
			ends[name] = end
		}
	}
	own, err := secured.Source.Certificate()
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(own.Certificate[0])
	if err != nil {
		return nil, fmt.Errorf("the broker's certificate: %w", err)
	}
	first("broker", leaf.NotAfter)
	authorities, err := secured.Source.Authorities()
	if err != nil {
		return nil, err
	}
	// An older authority ends while its successor signs.
	if len(authorities) > 0 {
		first("authority", slices.MaxFunc(authorities, func(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) }).NotAfter)
	}
	nodes, err := secured.Registry.List(ctx, "")
	if err != nil {
		return nil, err
	}
	for _, n := range nodes {
		if len(n.Issued) > 0 && n.Revoked == nil {
			first("node", slices.MaxFunc(n.Issued, func(a, b pki.Issued) int { return a.NotAfter.Compare(b.NotAfter) }).NotAfter)
		}
	}
	return ends, nil
}

// listenMetrics opens the address of the figures; nil if it is off.
func listenMetrics(c config, log *slog.Logger) (net.Listener, error) {
	if c.Metrics.Listen == "" {
		return nil, nil
	}
	listener, err := net.Listen("tcp", c.Metrics.Listen)
	if err != nil {
		return nil, fmt.Errorf("metrics.listen: %w", err)
	}
	log.Info("figures for Prometheus", "listen", listener.Addr().String())
	return listener, nil
}

// closeListener closes one that may not be there.
func closeListener(l net.Listener) error {
	if l == nil {
		return nil
	}
	return l.Close()
}
