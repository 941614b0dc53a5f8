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
	// errOvertaken ends a broker that may not act any more.
	errOvertaken = errors.New("the lease on the cluster in etcd is lost: another broker may act by now, so this one ends")
	errLocked    = errors.New("another broker runs with this socket")
)

// lead waits until no other broker acts on the cluster in a shared etcd, and ends
// ctx when this one may not act any more. The broker's own etcd is nobody else's,
// by the lock on its folder.
func lead(ctx context.Context, c config, log *slog.Logger, kept *etcdstore.Store, service *notify.Service, end context.CancelCauseFunc) error {
	if !c.Etcd.external() {
		return nil
	}
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	place, err := openretry.Open(ctx, openretry.Patience, errLocked, func() (string, error) {
		place, _, err := lockPlace(host, c.Socket+".lock", errLocked)
		return place, err
	})
	if err != nil {
		return err
	}
	err = kept.Lead(ctx, etcdstore.Claim{
		Place:  place,
		Holder: fmt.Sprintf("%s pid %d, which serves this cluster since %s", host, os.Getpid(), time.Now().UTC().Format(time.RFC3339)),
		Waits: func(holder string) {
			log.Warn("another broker acts; waiting", "broker", holder)
			service.Ready("waits: another broker acts, " + holder)
		},
		Alive: service.Alive,
	})
	if err != nil {
		return err
	}
	go endWhenLost(ctx, kept.Lost(), log, end)
	return nil
}

// endWhenLost ends a broker that has lost its lease. One that ends by itself gives its lease up.
func endWhenLost(ctx context.Context, lost <-chan struct{}, log *slog.Logger, end context.CancelCauseFunc) {
	select {
	case <-lost:
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		return
	}
	log.Error("this broker may not act any more", "error", errOvertaken)
	end(errOvertaken)
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
