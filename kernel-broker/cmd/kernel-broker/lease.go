// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store/etcdstore"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/notify"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/openretry"
)

var (
	// errLost ends what a broker does that may not act any more.
	errLost   = errors.New("the lease on the cluster in etcd is lost, another broker may act by now")
	errLocked = errors.New("another broker runs with this socket")
)

// line is where brokers of a shared etcd wait for each other. The broker's own etcd is nobody else's, by the lock on its
// folder.
type line struct {
	kept  *etcdstore.Store
	log   *slog.Logger
	claim *etcdstore.Claim // nil: nobody else can act
}

func newLine(ctx context.Context, c config, log *slog.Logger, kept *etcdstore.Store, service *notify.Service) (line, error) {
	if !c.Etcd.external() {
		return line{kept: kept, log: log}, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return line{}, err
	}
	place, err := openretry.Open(ctx, openretry.Patience, errLocked, func() (string, error) {
		place, _, err := lockPlace(host, c.Socket+".lock", errLocked)
		return place, err
	})
	if err != nil {
		return line{}, err
	}
	return line{kept: kept, log: log, claim: &etcdstore.Claim{
		Place:  place,
		Holder: fmt.Sprintf("%s pid %d, which serves this cluster since %s", host, os.Getpid(), time.Now().UTC().Format(time.RFC3339)),
		Waiter: fmt.Sprintf("%s pid %d, which waits since %s", host, os.Getpid(), time.Now().UTC().Format(time.RFC3339)),
		Waits: func(holder string) {
			log.Warn("another broker acts; waiting", "broker", holder)
			service.Ready("waits: another broker acts, " + holder)
		},
		Alive: service.Alive,
	}}, nil
}

// terms acts whenever no other broker does. One that loses its lease drops all that it has in memory, closes its sockets, so
// that agents and hooks try the next broker, and waits in line again.
func (l line) terms(ctx context.Context, act func(context.Context) error) error {
	if l.claim == nil {
		if err := l.kept.Begin(ctx); err != nil {
			return err
		}
		return act(ctx)
	}
	for {
		if err := l.kept.Lead(ctx, *l.claim); err != nil {
			return err
		}
		err := l.term(ctx, act)
		if ctx.Err() != nil || l.kept.MayAct() == nil {
			return err
		}
		l.log.Warn("this broker does not act any more, and waits", "reason", l.kept.MayAct(), "error", err)
		l.claim.Again = true
	}
}

// term acts until the lease is lost.
func (l line) term(ctx context.Context, act func(context.Context) error) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	go func() {
		select {
		case <-l.kept.Lost():
			end(errLost)
		case <-ctx.Done():
		}
	}()
	return act(ctx)
}

// actingHealth says who acts, in which epoch, and who waits for that.
func (c config) actingHealth(ctx context.Context, kept *etcdstore.Store) (string, error) {
	if err := kept.MayAct(); err != nil {
		return "", fmt.Errorf("this broker pauses: %w", err)
	}
	if !c.Etcd.external() {
		return fmt.Sprintf("this broker, in epoch %d; no other can, with the embedded store", kept.Epoch()), nil
	}
	holder, err := kept.Acting(ctx)
	if err != nil {
		return "", err
	}
	waiting, err := kept.Waiting(ctx)
	if err != nil {
		return "", err
	}
	waits := "no other broker waits"
	if len(waiting) > 0 {
		waits = "behind it: " + strings.Join(waiting, "; ")
	}
	return fmt.Sprintf("%s, in epoch %d; %s", holder, kept.Epoch(), waits), nil
}

// lockPlace locks a file until it is released or the process ends, and names the place:
// in this boot of this host nobody else has it. The broker's is beside the socket, since
// the data folder may be on a disk that several hosts have.
func lockPlace(host, file string, locked error) (place string, release func() error, err error) {
	path, err := filepath.Abs(file)
	if err != nil {
		return "", nil, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", nil, err
	}
	fd, err := syscall.Open(path, syscall.O_RDWR|syscall.O_CREAT|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return "", nil, fmt.Errorf("lock %q: %w", path, err)
	}
	release = func() error { return syscall.Close(fd) }
	if err := syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = fmt.Errorf("%w: %q", locked, path)
		}
		return "", nil, errors.Join(err, release())
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", nil, errors.Join(err, release())
	}
	// Containers of one machine have one boot id, and each its own /run and name.
	return strings.TrimSpace(string(boot)) + ":" + host + ":" + path, release, nil
}
