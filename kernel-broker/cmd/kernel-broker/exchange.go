// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/mtls"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/pki"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/catalog"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/controller"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/peers"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/server"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store/etcdstore"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/artifact"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/digest"
)

// peersConfig is peers in broker.yaml.
type peersConfig struct {
	Listen  string `yaml:"listen"`
	Address string `yaml:"address"`
}

func (p peersConfig) validate() error {
	for key, address := range map[string]string{"peers.listen": p.Listen, "peers.address": p.Address} {
		if _, _, err := net.SplitHostPort(address); err != nil && (key == "peers.listen" || address != "") {
			return fmt.Errorf("%s: %w", key, err)
		}
	}
	return nil
}

// Records that are for brokers which wait.
const (
	snapshotKey   = "snapshot"
	brokersPrefix = "brokers/"
)

// exchange is what a broker has from its start to its end, whether it acts or waits: its artifacts, which it gives to its
// peers, and copies of theirs.
type exchange struct {
	*peers.Exchange
	c         config
	log       *slog.Logger
	kept      *etcdstore.Store
	host      string
	source    lateSource
	listen    net.Listener // nil: brokers exchange nothing
	id        string
	self      string // as it announces itself
	acting    atomic.Pointer[controller.Controller]
	mu        sync.Mutex
	authority *pki.Authority
	// What the loop alone has.
	snapshot string
	said     string
}

func openExchange(c config, log *slog.Logger, kept *etcdstore.Store) (*exchange, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	short, _, _ := strings.Cut(host, ".")
	x := &exchange{c: c, log: log, kept: kept, host: short}
	files, err := artifact.OpenStore(filepath.Join(c.DataDir, "artifacts"), artifact.StoreOptions{
		Limit: c.Artifacts.MaxBytes, Uploads: c.Artifacts.MaxUploads, Grace: c.Artifacts.Grace, Log: log, Needed: x.needed,
	})
	if err != nil {
		return nil, err
	}
	socket, err := filepath.Abs(c.Socket)
	if err != nil {
		return nil, err
	}
	id := digest.Of([]byte(host + ":" + socket))[len("sha256:"):][:16]
	x.id = id
	o := peers.Options{Files: files, ID: id, TLS: mtls.BrokerConfig(&x.source, c.Cluster), MostBytes: max(c.MaxArtifactBytes, c.Runs.MaxBytes), Elsewhere: x.elsewhere, Log: log}
	if c.Etcd.external() && c.TLS.Mode == tlsNone {
		log.Warn("tls.mode is none: brokers give each other no artifacts, so one that takes over has only what is in its own data_dir")
	}
	if c.Etcd.external() && c.TLS.Mode != tlsNone {
		o.Announced = kept.Announced
		if x.listen, err = net.Listen("tcp", c.Peers.Listen); err != nil {
			return nil, fmt.Errorf("peers.listen: %w", err)
		}
		if x.self, err = (peers.Peer{Host: short, Address: x.address(), ID: id}).Text(); err != nil {
			return nil, errors.Join(err, x.listen.Close())
		}
	}
	x.Exchange = peers.New(o)
	return x, nil
}

// address is where others reach this broker.
func (x *exchange) address() string {
	if x.c.Peers.Address != "" {
		return x.c.Peers.Address
	}
	host, port, _ := net.SplitHostPort(x.listen.Addr().String())
	if ip := net.ParseIP(host); ip == nil || ip.IsUnspecified() {
		host, _ = os.Hostname() // was read before
	}
	return net.JoinHostPort(host, port)
}

const (
	// copyEvery is how soon a broker that waits sees what was registered.
	copyEvery = 5 * time.Second
	// peerConnections bound who reaches the brokers' port, from one address and from all.
	peerConnections, allPeerConnections = 16, 128
)

// start has the exchange work until ctx ends, or the function that it returns is called.
func (x *exchange) start(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	if x.listen != nil {
		limits := server.DefaultLimits()
		limits.PeerConnections, limits.Connections = peerConnections, allPeerConnections
		group.Go(func() {
			if err := x.Serve(ctx, server.Options{Limits: limits, Log: x.log}.Listener(x.listen)); err != nil {
				x.log.Error("other brokers get no artifacts until a restart", "error", err)
			}
		})
		group.Go(func() { x.kept.Announce(ctx, x.id, x.self) })
		group.Go(func() {
			for {
				x.round(ctx)
				select {
				case <-ctx.Done():
					return
				case <-time.After(copyEvery):
				}
			}
		})
	}
	return func() {
		cancel()
		group.Wait()
		x.Close()
	}
}

// round copies what other brokers have made, as far as it is not here.
func (x *exchange) round(ctx context.Context) {
	err := errors.Join(x.follow(ctx), x.copySnapshot(ctx))
	if x.source.now.Load() != nil {
		wanted, failed := x.kernels(ctx)
		err = errors.Join(err, failed)
		x.Copy(ctx, slices.Sorted(maps.Keys(wanted)))
	}
	text := ""
	if err != nil && ctx.Err() == nil {
		text = err.Error()
	}
	if text != "" && text != x.said {
		x.log.Warn("what other brokers made is not copied, it is tried again", "error", err)
	}
	x.said = text
}

// follow has what this broker shows and trusts as the store has it now.
func (x *exchange) follow(ctx context.Context) error {
	if x.listen == nil {
		return nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.authority != nil {
		return x.authority.Refresh(ctx)
	}
	if x.source.now.Load() != nil {
		return nil
	}
	secrets, err := x.c.secrets(ctx, x.kept, false)
	if err == nil {
		var source mtls.Source
		if source, x.authority, err = openSource(ctx, x.c, secrets); err == nil {
			x.source.now.Store(&source)
		}
	}
	if errors.Is(err, kb.ErrNotFound) { // the first broker has not acted yet
		return nil
	}
	return err
}

// copySnapshot keeps the file for this host's plugin as the acting broker has it.
func (x *exchange) copySnapshot(ctx context.Context) error {
	if x.c.Snapshot == "" || x.acting.Load() != nil {
		return nil
	}
	rec, err := x.kept.Get(ctx, snapshotKey)
	if errors.Is(err, store.ErrNotFound) || err == nil && string(rec.Value) == x.snapshot {
		return nil
	}
	if err == nil {
		if err = catalog.WriteSnapshot(x.c.Snapshot, string(rec.Value)); err == nil {
			x.snapshot = string(rec.Value)
		}
	}
	return err
}

// publish writes the snapshot for this host's plugin, and for those of the hosts whose brokers wait.
func (x *exchange) publish(ctx context.Context, text string) error {
	var err error
	if x.c.Snapshot != "" {
		err = catalog.WriteSnapshot(x.c.Snapshot, text)
	}
	if x.c.Etcd.external() && err == nil {
		_, err = x.kept.Commit(ctx, store.Write{Key: snapshotKey, Value: []byte(text), Expect: store.AnyRevision})
	}
	return err
}

// kernels are the artifacts of versions that may be booted, and their documents, with who needs them.
func (x *exchange) kernels(ctx context.Context) (map[string][]string, error) {
	return x.neededBy(ctx, nil)
}

// needed adds the results of runs.
func (x *exchange) needed(ctx context.Context) (map[string][]string, error) {
	runs, err := controller.RunFiles(ctx, x.kept)
	if err != nil {
		return nil, err
	}
	return x.neededBy(ctx, runs)
}

func (x *exchange) neededBy(ctx context.Context, runs map[string][]string) (map[string][]string, error) {
	profiles, err := catalog.New(catalog.Options{Store: x.kept, Log: x.log}).List(ctx)
	if err != nil {
		return nil, err
	}
	var held map[kb.Ref][]string
	if ctl := x.acting.Load(); ctl != nil {
		held = ctl.InUse()
	}
	return catalog.NeededArtifacts(profiles, held, runs, time.Now(), x.c.Artifacts.RetiredFor)
}

// acted is the record of a broker that has acted: results of runs may be on its host alone.
type acted struct {
	Since time.Time `json:"since"`
}

// acts notes that this broker acts.
func (x *exchange) acts(ctx context.Context) error {
	if !x.c.Etcd.external() {
		return nil
	}
	text, err := json.Marshal(acted{time.Now().UTC().Truncate(time.Second)})
	if err == nil {
		_, err = x.kept.Commit(ctx, store.Write{Key: brokersPrefix + x.host, Value: text, Expect: store.AnyRevision})
	}
	return err
}

// away are the brokers that have acted and do not run.
func (x *exchange) away(ctx context.Context, running []string) (hosts []string, err error) {
	records, _, err := x.kept.List(ctx, brokersPrefix)
	for _, rec := range records {
		host := strings.TrimPrefix(rec.Key, brokersPrefix)
		var a acted
		if host != x.host && !slices.Contains(running, host) && json.Unmarshal(rec.Value, &a) == nil {
			hosts = append(hosts, fmt.Sprintf("%s, which last began to act at %s", host, a.Since.UTC().Format(time.RFC3339)))
		}
	}
	return hosts, err
}

// elsewhere names who may have what nobody who runs has.
func (x *exchange) elsewhere(ctx context.Context, running []string) string {
	hosts, err := x.away(ctx, running)
	switch {
	case err != nil:
		return ", and which others there are is not known: " + err.Error()
	case len(hosts) == 0:
		return ""
	}
	return "; these brokers may have it and do not run: " + strings.Join(hosts, "; ")
}

// mostNamed artifacts are named in one line.
const mostNamed = 4

// copiesHealth says whether each kernel is on this host, and on another.
func (x *exchange) copiesHealth(ctx context.Context) (string, error) {
	wanted, err := x.kernels(ctx)
	if err != nil {
		return "", err
	}
	others, err := x.Others(ctx)
	if err != nil {
		return "", err
	}
	have := map[string]int{}
	own, err := x.Entries()
	if err != nil {
		return "", err
	}
	for _, f := range own {
		have[f.Digest]++
	}
	var wrong []string
	var hosts []string
	for _, p := range others {
		hosts = append(hosts, p.Host)
		files, err := x.ListOf(ctx, p)
		if err != nil {
			wrong = append(wrong, err.Error())
		}
		for name := range files {
			have[name]++
		}
	}
	lacks := map[int][]string{}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		lacks[have[name]] = append(lacks[have[name]], fmt.Sprintf("%.19s... (%s)", name, strings.Join(wanted[name], ", ")))
	}
	if n := len(lacks[0]); n > 0 {
		return "", fmt.Errorf("no broker that runs has %d of %d artifacts, to be uploaded again%s: %s", n, len(wanted), x.elsewhere(ctx, hosts), named(lacks[0]))
	}
	away, err := x.away(ctx, hosts)
	if err != nil {
		return "", err
	}
	detail := fmt.Sprintf("%d artifacts on this host", len(wanted))
	if len(others) > 0 {
		detail = fmt.Sprintf("%d artifacts on this host, or on %s", len(wanted), strings.Join(hosts, ", "))
	}
	if n := len(lacks[1]); n > 0 && len(others)+len(away) > 0 {
		wrong = append(wrong, fmt.Sprintf("one broker alone has %d of %d artifacts: %s", n, len(wanted), named(lacks[1])))
	}
	if len(wrong) > 0 {
		return detail, warning{errors.New(strings.Join(wrong, "; "))}
	}
	return detail, nil
}

func named(list []string) string {
	if n := len(list) - mostNamed; n > 0 {
		list = append(slices.Clone(list[:mostNamed]), fmt.Sprintf("and %d more", n))
	}
	return strings.Join(list, ", ")
}

// lateSource shows and trusts nobody before the cluster has an authority.
type lateSource struct{ now atomic.Pointer[mtls.Source] }

var errNoAuthorityYet = fmt.Errorf("no broker of the cluster has made the authority yet: %w", kb.ErrUnavailable)

// Certificate implements mtls.Source.
func (l *lateSource) Certificate() (*tls.Certificate, error) {
	if source := l.now.Load(); source != nil {
		return (*source).Certificate()
	}
	return nil, errNoAuthorityYet
}

// Authorities implements mtls.Source.
func (l *lateSource) Authorities() ([]*x509.Certificate, error) {
	if source := l.now.Load(); source != nil {
		return (*source).Authorities()
	}
	return nil, errNoAuthorityYet
}
