// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/signing"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/catalog"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/controller"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/history"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/metrics"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/power"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/server"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/slurm"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store/etcdserver"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store/etcdstore"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store/site"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/notify"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/openretry"
)

const startLimit = time.Minute

// run opens the store, and serves whenever this broker may act, until ctx ends.
func run(ctx context.Context, c config, log *slog.Logger) error {
	service := notify.New(log)
	defer service.Stopping()
	if err := checkBeforehand(c); err != nil {
		return err
	}
	hangups := make(chan os.Signal, 1)
	// From the first moment on, since a signal that nobody waits for is deadly.
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	kept, closeStore, err := openStore(ctx, c, log)
	if err != nil {
		return err
	}
	defer func() {
		if err := closeStore(); err != nil {
			log.Error("store not closed", "error", err)
		}
	}()
	if c.Etcd.external() {
		if c.Etcd.QuotaBytes, err = c.Etcd.examine(ctx, kept, log); err != nil {
			return err
		}
	}
	// Before it waits, and after: another broker may have changed it.
	place, err := c.keyed(ctx, kept, c.place())
	if err == nil {
		err = site.Check(ctx, kept, place)
	}
	if err == nil {
		err = checkShared(ctx, c, kept)
	}
	if err != nil {
		return err
	}
	line, err := newLine(ctx, c, log, kept, service)
	if err != nil {
		return err
	}
	files, err := openExchange(c, log, kept)
	if err != nil {
		return err
	}
	defer files.start(ctx)()
	return line.terms(ctx, func(ctx context.Context) error { return act(ctx, c, log, kept, files, hangups, service) })
}

// act composes the broker and serves until ctx ends, while no other one acts.
func act(ctx context.Context, c config, log *slog.Logger, kept *etcdstore.Store, files *exchange, hangups chan os.Signal, service *notify.Service) error {
	if err := claimSite(ctx, c, kept, log); err != nil {
		return err
	}
	select {
	case <-hangups: // of the time when it waited: the files are read now
	default:
	}
	secrets, err := c.secrets(ctx, kept, true)
	if err != nil {
		return err
	}
	trust, err := openTrustList(ctx, c, log, kept)
	if err != nil {
		return err
	}
	if err := files.acts(ctx); err != nil {
		return err
	}
	// Set before anybody asks.
	var profiles *catalog.Catalog
	clock := controller.NewClock()
	slurmctld := slurm.New(slurm.Options{Now: clock.Now, BinDir: c.Slurm.BinDir, Conf: c.Slurm.Conf, Limit: c.Slurm.Limit, Hold: kept.Hold})
	events, err := openHistory(ctx, c, log, kept, clock)
	if err != nil {
		return err
	}
	auth, err := openAuthorization(ctx, c, log, kept, slurmctld, hangups, func() { profiles.Republish() })
	if err != nil {
		return err
	}
	defer func() {
		if err := auth.close(); err != nil {
			log.Error("audit log not closed", "error", err)
		}
	}()
	figures := metrics.New(version)
	events.Observe(figures.Events)
	profiles = catalog.New(catalog.Options{Store: kept, History: events, Log: log, HasArtifact: files.Has, CheckEnvelope: signing.NewRegistrationCheck(trust),
		Restricted: func(profile string) bool { return auth.State().Policy.Restricted(profile) }})
	auth.registered = profiles.Names
	switched, closed, err := openTraces(ctx, c, log)
	if err != nil {
		return err
	}
	defer closed()
	ctl, err := newController(ctx, c, log, kept, events, figures, profiles, files, slurmctld, auth, clock, service, switched)
	if err != nil {
		return err
	}
	files.acting.Store(ctl)
	defer files.acting.Store(nil)
	secured, err := openTLS(ctx, c, log, kept, secrets)
	if err != nil {
		return err
	}
	if err := files.follow(ctx); err != nil {
		return err
	}
	server, err := newServer(c, log, ctl, profiles, files, kept, events, figures, secured, auth)
	if err != nil {
		return err
	}
	watch(figures, c, ctl, profiles, kept, events, secured)
	return serve(ctx, c, log, ctl, files, events, figures, server, auth, service)
}

// checkBeforehand looks at what the broker needs before it waits for another one.
func checkBeforehand(c config) error {
	// Users read the snapshot in there; etcd closes its own folder.
	if err := os.MkdirAll(c.DataDir, 0o755); err != nil {
		return fmt.Errorf("data folder: %w", err)
	}
	if err := unix.Access(c.DataDir, unix.W_OK|unix.X_OK); err != nil {
		return fmt.Errorf("data folder %q: %w", c.DataDir, err)
	}
	if _, err := uids(append([]string{c.Slurm.User}, c.Administrators...)); err != nil {
		return usageError{err}
	}
	return nil
}

func newController(ctx context.Context, c config, log *slog.Logger, kept *etcdstore.Store, events *history.Journal, figures *metrics.Metrics, profiles *catalog.Catalog, files *exchange, slurmctld *slurm.Client, auth *authorization, clock *controller.Clock, service *notify.Service, switched func(*kb.Allocation)) (*controller.Controller, error) {
	o := controller.Options{
		Switched: switched,
		Store:    kept, History: events, Passed: figures.Passed, Polled: figures.Polled, Catalog: profiles, Plan: c.plan(), Log: log,
		Slurm: slurmctld, Clock: clock, Authorize: auth.authorizeJob, AuthorizeProfiling: auth.authorizeProfiling,
		PollBusy: c.Slurm.PollBusy, PollIdle: c.Slurm.PollIdle, QuarantineAfter: c.QuarantineAfter, KeepJobs: c.KeepJobs, KeepJobBytes: c.Etcd.QuotaBytes / 2, Switches: c.Switch.AtOnce, ReturnRuleAfter: c.Switch.ReturnRuleAfter,
		Runs: c.Runs.RunLimits, HasArtifact: files.Has, CheckArtifact: files.Check, Alive: service.Alive, MayAct: kept.MayAct,
		// Results of runs have half of the store, kernels the other.
		Heartbeats: c.Limits.Heartbeats,
		RunRoom:    func() (uint64, error) { room, err := files.Capacity(); return room / 2, err }, KeepRunBytes: int64(c.Artifacts.MaxBytes / 2), ReleaseArtifact: files.Release,
	}
	if len(c.ResetCommand) > 0 {
		command, err := power.New(c.ResetCommand)
		if err != nil {
			return nil, usageError{err}
		}
		command.Hold = kept.Hold
		o.Reset = command
		if err := command.Check(); err != nil {
			log.Warn("nodes cannot be reset", "error", err)
		}
	}
	return controller.New(ctx, o)
}

// openStore connects to the cluster named, or starts an etcd of its own.
func openStore(ctx context.Context, c config, log *slog.Logger) (*etcdstore.Store, func() error, error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	if c.Etcd.external() {
		if err := c.Etcd.check(); err != nil {
			return nil, nil, usageError{err}
		}
		c.Etcd.warnOpen(log)
		kept, err := etcdstore.Open(ctx, c.Etcd.store(c.Cluster, log))
		if err != nil {
			return nil, nil, err
		}
		return kept, kept.Close, nil
	}
	server, err := openretry.Open(ctx, openretry.Patience, etcdserver.ErrInUse, func() (*etcdserver.Server, error) {
		return etcdserver.Start(ctx, etcdserver.Config{Dir: c.etcdDir(), Quota: c.Etcd.QuotaBytes, Logger: log})
	})
	if err != nil {
		return nil, nil, err
	}
	kept, err := etcdstore.Open(ctx, etcdstore.Config{Endpoints: []string{server.Endpoint()}, Cluster: c.Cluster, Logger: log})
	if err != nil {
		return nil, nil, errors.Join(err, server.Close())
	}
	return kept, func() error { return errors.Join(kept.Close(), server.Close()) }, nil
}

// grpcServer is the API and what its listeners have to hold to.
type grpcServer struct {
	*server.Server
	options server.Options
}

func (s *grpcServer) serve(l net.Listener) error { return s.Serve(s.options.Listener(l)) }

func newServer(c config, log *slog.Logger, ctl *controller.Controller, profiles *catalog.Catalog, files *exchange, kept *etcdstore.Store, events *history.Journal, figures *metrics.Metrics, secured *server.TLS, auth *authorization) (*grpcServer, error) {
	administrators, err := uids(c.Administrators)
	if err != nil {
		return nil, usageError{err}
	}
	slurmUsers, err := uids([]string{c.Slurm.User})
	if err != nil {
		return nil, usageError{err}
	}
	controllers, err := c.controllers()
	if err != nil {
		return nil, usageError{err}
	}
	c.Limits.warnIgnored(log)
	open, err := maxOpenFiles()
	if err != nil {
		return nil, err
	}
	options := server.Options{
		Catalog: profiles, Artifacts: files, Version: version, Administrators: administrators, SlurmUsers: slurmUsers, Controllers: controllers,
		Unary: figures.Calls.UnaryServerInterceptor(), Stream: figures.Calls.StreamServerInterceptor(),
		TLS: secured, PrivilegedAgents: c.PrivilegedAgents, MaxArtifactBytes: c.MaxArtifactBytes, Log: log,
		Verifier: verifier(c), Authorizer: auth.Authorizer, ShowsOthers: auth.privacy.ShowsOthers, Limits: within(c.Limits.Limits, open, log),
		Health: func(ctx context.Context) []server.Component {
			return []server.Component{
				component("store", func() (string, error) { return kept.Health(ctx) }),
				component("acting", func() (string, error) { return c.actingHealth(ctx, kept) }),
				component("slurm", func() (string, error) { return ctl.SlurmHealth(ctx) }),
				component("admin-level", func() (string, error) { return auth.level.Health(ctx) }),
				component("configuration", c.configurationHealth),
				auth.component(ctx, func() (string, error) { return c.policyHealth(auth) }),
				component("reset-command", c.resetHealth),
				component("audit-log", auth.record.Health),
				component("copies", func() (string, error) { return files.copiesHealth(ctx) }),
				component("stock-images", func() (string, error) { return ctl.ImageHealth(ctx) }),
				component("hardware", func() (string, error) { return ctl.LedgerHealth(ctx) }),
				component("events", historyHealth(events)),
				component("agents", func() (string, error) { return ctl.AgentHealth(ctx) }),
			}
		},
	}
	serving := &grpcServer{server.NewServer(options), options}
	api.RegisterAllocationServiceServer(serving, server.NewAllocationService(ctl))
	api.RegisterNodeServiceServer(serving, server.NewNodeService(ctl, kept))
	api.RegisterHardwareServiceServer(serving, server.NewHardwareService(ctl))
	api.RegisterEventServiceServer(serving, server.NewEventService(events))
	api.RegisterRunServiceServer(serving, runService(c, ctl, files, administrators))
	return serving, nil
}

func uids(names []string) ([]uint32, error) {
	var out []uint32
	for _, name := range names {
		u, err := user.Lookup(name)
		if err != nil {
			if u, err = user.LookupId(name); err != nil {
				return nil, fmt.Errorf("user %q is not known on this host", name)
			}
		}
		id, err := strconv.ParseUint(u.Uid, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("user %q: %w", name, err)
		}
		out = append(out, uint32(id))
	}
	return out, nil
}

// serve listens, works, and stops what it began when ctx ends or a part fails.
func serve(ctx context.Context, c config, log *slog.Logger, ctl *controller.Controller, files *exchange, events *history.Journal, figures *metrics.Metrics, grpc *grpcServer, auth *authorization, service *notify.Service) error {
	local, err := listenLocal(c.Socket)
	if err != nil {
		return err
	}
	network, err := server.Listen(ctx, c.Listen)
	if err != nil {
		return errors.Join(err, local.Close())
	}
	scrapes, err := listenMetrics(c, log)
	if err != nil {
		return errors.Join(err, local.Close(), network.Close())
	}
	var profiles net.Listener
	if c.PprofSocket != "" {
		if profiles, err = listenPprof(ctx, c.PprofSocket); err != nil {
			return errors.Join(err, local.Close(), network.Close(), closeListener(scrapes))
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	parts := map[string]func() error{
		"local socket": func() error { return grpc.serve(local) },
		"agents' port": func() error { return grpc.serve(network) },
		"controller":   func() error { return ctl.Run(ctx) },
		"snapshot":     func() error { return ctl.Publish(ctx, files.publish) },
		"policy":       func() error { return auth.follow(ctx) },
		"events":       func() error { return events.Run(ctx) },
	}
	if profiles != nil {
		parts["pprof socket"] = func() error { return servePprof(ctx, profiles) }
	}
	if scrapes != nil {
		parts["metrics"] = func() error { return figures.Serve(ctx, scrapes, log) }
	}
	failed := make(chan error, len(parts))
	var group sync.WaitGroup
	for name, part := range parts {
		group.Go(func() {
			if err := part(); err != nil && ctx.Err() == nil {
				failed <- fmt.Errorf("%s: %w", name, err)
			}
		})
	}
	log.Info("broker serves", "socket", c.Socket, "listen", network.Addr().String(), "version", version)
	service.Ready("serves agents on " + network.Addr().String() + " and users on " + c.Socket)
	select {
	case err = <-failed:
	case <-ctx.Done():
	}
	cancel()
	grpc.Stop()
	group.Wait()
	log.Info("broker stopped")
	return err
}

// listenLocal makes the socket that every user of the host may connect to; who
// may call what is decided per call.
func listenLocal(path string) (net.Listener, error) {
	if err := takeSocket(path); err != nil {
		return nil, err
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o666); err != nil { //nolint:gosec // G302: a socket for all: who calls is told by the kernel
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// takeSocket makes way for a socket at a path where nobody serves one.
func takeSocket(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if conn, err := net.DialTimeout("unix", path, time.Second); err == nil {
		return errors.Join(fmt.Errorf("socket %q: another broker serves it", path), conn.Close())
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
