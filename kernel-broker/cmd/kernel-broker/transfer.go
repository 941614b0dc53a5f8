// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"log/slog"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/pki"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store/etcdserver"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store/etcdstore"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store/sealed"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store/site"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/atomicfile"
)

// transfer is one of the commands that copy records.
type transfer struct {
	c        config
	out, err io.Writer
	progress site.Progress
	log      *slog.Logger
	patience time.Duration // with a broker that may be dead
}

// outlives is how long a lease outlives its dead holder, and a little: that of an older broker lasts 10 s.
const outlives = 12 * time.Second

// A backup is begun again when etcd drops the history that it reads.
const backupTries = 3

func (t transfer) namespace() string {
	namespace, _ := etcdstore.Namespace(t.c.Etcd.Prefix, t.c.Cluster) // was validated
	return namespace
}

func (t transfer) openExternal(ctx context.Context) (*etcdstore.Store, error) {
	if err := t.c.Etcd.check(); err != nil {
		return nil, usageError{err}
	}
	return etcdstore.Open(ctx, t.c.Etcd.store(t.c.Cluster, t.log))
}

// owner refuses to leave files in the data folder that the broker's user cannot open.
func (t transfer) owner() error {
	info, err := os.Stat(t.c.DataDir)
	if err != nil {
		return fmt.Errorf("data folder: %w", err)
	}
	stat, is := info.Sys().(*syscall.Stat_t)
	if !is || int(stat.Uid) == os.Geteuid() {
		return nil
	}
	name := strconv.FormatUint(uint64(stat.Uid), 10)
	if u, err := user.LookupId(name); err == nil {
		name = u.Username
	}
	return usageError{fmt.Errorf("the data folder %s belongs to the user %s: run this as that user, with runuser -u %s -- before the command", t.c.DataDir, name, name)}
}

// openEmbedded starts the embedded store, which no broker may use meanwhile.
func (t transfer) openEmbedded(ctx context.Context) (*etcdstore.Store, func() error, error) {
	if err := t.owner(); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	// It says much that is of no use in a command.
	fatal := slog.New(slog.NewTextHandler(t.err, &slog.HandlerOptions{Level: etcdserver.Fatal}))
	server, err := etcdserver.Start(ctx, etcdserver.Config{Dir: t.c.etcdDir(), Quota: t.c.Etcd.QuotaBytes, Logger: fatal})
	if err != nil {
		return nil, nil, err
	}
	kept, err := etcdstore.Open(ctx, etcdstore.Config{Endpoints: []string{server.Endpoint()}, Cluster: t.c.Cluster, Logger: t.log})
	if err != nil {
		return nil, nil, errors.Join(err, server.Close())
	}
	return kept, func() error { return errors.Join(kept.Close(), server.Close()) }, nil
}

// openStopped is openEmbedded, and says what keeps the store.
func (t transfer) openStopped(ctx context.Context) (*etcdstore.Store, func() error, error) {
	kept, closeKept, err := t.openEmbedded(ctx)
	if errors.Is(err, etcdserver.ErrInUse) {
		err = fmt.Errorf("%w: stop the broker first (systemctl stop kernel-broker)", err)
	}
	return kept, closeKept, err
}

// lockedFile is in the data folder: one of these commands runs at a time.
const lockedFile = "store.lock"

var errTransfer = errors.New("another kernel-broker store command runs on this data folder")

// openTarget opens an etcd to write to. Nobody else acts on it from then on.
func (t transfer) openTarget(ctx context.Context, what string) (site.Target, func() error, error) {
	if err := t.owner(); err != nil {
		return site.Target{}, nil, err
	}
	kept, err := t.openExternal(ctx)
	if err != nil {
		return site.Target{}, nil, err
	}
	found, err := kept.Examine(ctx)
	if err != nil {
		return site.Target{}, nil, errors.Join(fmt.Errorf("etcd: %w", err), kept.Close())
	}
	for _, w := range found.Warnings {
		t.log.Warn("something of this etcd should be mended", "what", w)
	}
	release, err := t.lead(ctx, kept, what)
	if err != nil {
		return site.Target{}, nil, errors.Join(err, kept.Close())
	}
	return site.Target{Place: t.c.externalPlace(), Store: kept, Room: found.Quota}, func() error { return errors.Join(kept.Close(), release()) }, nil
}

// lead has no broker act. One that was killed is waited for, as long as its lease lasts.
func (t transfer) lead(ctx context.Context, kept *etcdstore.Store, what string) (release func() error, err error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	place, release, err := lockPlace(host, filepath.Join(t.c.DataDir, lockedFile), errTransfer)
	if err != nil {
		return nil, err
	}
	claim := etcdstore.Claim{Place: place, Holder: fmt.Sprintf("%s pid %d, which runs kernel-broker store %s", host, os.Getpid(), what)}
	end, told := time.Now().Add(t.patience), false
	for {
		holder, err := kept.TryLead(ctx, claim)
		switch {
		case err != nil:
			return nil, errors.Join(err, release())
		case holder == "":
			return release, nil
		case time.Now().After(end):
			return nil, errors.Join(fmt.Errorf("%s: a broker acts on it: %s: stop it, and all others: %w", t.c.externalPlace().Store, holder, kb.ErrFailedPrecondition), release())
		case !told:
			fmt.Fprintf(t.err, "waiting %v for the end of %s\n", t.patience, holder)
			told = true
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), release())
		case <-time.After(time.Second / 2):
		}
	}
}

// source has the records of an open store as of now.
func source(ctx context.Context, kept *etcdstore.Store, c config, name string) (site.Source, *etcdstore.Snapshot, error) {
	id, _, err := site.Read(ctx, kept)
	if err != nil {
		return site.Source{}, nil, err
	}
	if id == nil {
		id = &site.Identity{Cluster: c.Cluster} // of a version before sites had names
	}
	if id.Unfinished != "" {
		return site.Source{}, nil, fmt.Errorf("a part of the records only is there, since a %s did not finish: run it again: %w", id.Unfinished, kb.ErrFailedPrecondition)
	}
	snap, err := kept.Snapshot(ctx)
	if err != nil {
		return site.Source{}, nil, err
	}
	return site.Source{Identity: *id, Name: name, Count: snap.Count,
		Records: func(ctx context.Context) iter.Seq2[store.Record, error] { return site.Records(snap.Records(ctx)) }}, snap, nil
}

// move copies from the embedded store to the etcd named.
func (t transfer) move(ctx context.Context) (err error) {
	if !t.c.Etcd.external() {
		return usageError{errors.New("etcd.endpoints of broker.yaml is empty: name the etcd to move to")}
	}
	if !etcdserver.HasData(t.c.etcdDir()) {
		return fmt.Errorf("%s has no data: there is nothing to move: %w", t.c.embeddedPlace().Store, kb.ErrNotFound)
	}
	from, closeFrom, err := t.openStopped(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeFrom()) }()
	target, closeTarget, err := t.openTarget(ctx, "move")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeTarget()) }()
	src, _, err := source(ctx, from, t.c, "move from the embedded store")
	if err != nil {
		return err
	}
	if done, err := moved(ctx, target.Store, src, t.c); err != nil || done {
		if done {
			fmt.Fprintf(t.out, "the records are in %s already\n", target.Place.Store)
		}
		return err
	}
	if err := site.Copy(ctx, src, target, t.progress); err != nil {
		return fmt.Errorf("move: %w", err)
	}
	fmt.Fprintf(t.out, "the records of %s are in %s; start the broker. %s is as it was: remove it when the broker has worked without it for a while\n",
		t.c.Cluster, target.Place.Store, t.c.etcdDir())
	return nil
}

// moved reports whether an earlier move has done its last step.
func moved(ctx context.Context, kept store.Store, src site.Source, c config) (bool, error) {
	local, err := site.ReadLocal(c.DataDir)
	if err != nil || local == nil {
		return false, err
	}
	id, _, err := site.Read(ctx, kept)
	if err != nil || id == nil {
		return false, err
	}
	return local.Store == site.External && !local.New && id.Unfinished == "" && id.ID == local.ID && (src.Identity.ID == "" || src.Identity.ID == id.ID), nil
}

// restore fills an empty store from a backup.
func (t transfer) restore(ctx context.Context, path string) (err error) {
	b, err := site.OpenBackup(ctx, path)
	if err != nil {
		return err
	}
	defer func() { _ = b.Close() }() // only read from
	open := t.openRestored
	if t.c.Etcd.external() {
		open = func(ctx context.Context) (site.Target, func() error, error) { return t.openTarget(ctx, "restore") }
	}
	target, closeTarget, err := open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeTarget()) }()
	if err := site.Copy(ctx, b.Source(), target, t.progress); err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	fmt.Fprintf(t.out, "%d records of %s as of %s are in %s; start the broker\n", b.Records, b.Cluster, b.Taken.UTC().Format(time.RFC3339), target.Place.Store)
	return nil
}

// openRestored is the embedded store to restore to.
func (t transfer) openRestored(ctx context.Context) (site.Target, func() error, error) {
	kept, closeKept, err := t.openStopped(ctx)
	return site.Target{Place: t.c.embeddedPlace(), Store: kept, Room: t.c.Etcd.QuotaBytes}, closeKept, err
}

// backup writes all records to a new file.
func (t transfer) backup(ctx context.Context, path string) (err error) {
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		if err == nil {
			err = fmt.Errorf("backup: %s: %w: name a new file", path, fs.ErrExist)
		}
		return err
	}
	kept, closeKept, err := t.openSource(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeKept()) }()
	var s site.Summary
	for try := 1; ; try++ {
		src, snap, err := source(ctx, kept, t.c, "")
		if err != nil {
			return err
		}
		err = atomicfile.Fill(path, 0o600, func(file *os.File) error {
			var err error
			s, err = site.Write(ctx, file, site.Header{Taken: time.Now().UTC().Truncate(time.Second), Revision: snap.Revision, Program: "kernel-broker " + version}, src, t.progress)
			return err
		})
		if err == nil {
			break
		}
		if !errors.Is(err, store.ErrCompacted) || try == backupTries {
			return fmt.Errorf("backup: %w", err)
		}
	}
	fmt.Fprintf(t.out, "%s has %d records of %s at revision %d, SHA-256 %s. Copy %s to another place, without which it has no authority, and %s for images and the audit log\n",
		path, s.Records, s.Cluster, s.Revision, s.SHA256, t.c.storeKeyFile(), t.c.DataDir)
	return nil
}

// openSource opens a store to read from, also that of a broker that runs.
func (t transfer) openSource(ctx context.Context) (*etcdstore.Store, func() error, error) {
	if t.c.Etcd.external() {
		kept, err := t.openExternal(ctx)
		if err != nil {
			return nil, nil, err
		}
		return kept, kept.Close, nil
	}
	if !etcdserver.HasData(t.c.etcdDir()) {
		return nil, nil, fmt.Errorf("%s has no data: %w", t.c.embeddedPlace().Store, kb.ErrNotFound)
	}
	// A running broker's first: root may ask it as well.
	endpoint, err := etcdserver.Endpoint(t.c.etcdDir())
	if err != nil {
		return nil, nil, err
	}
	conn, err := net.DialTimeout("unix", strings.TrimPrefix(endpoint, "unix://"), time.Second)
	if err != nil {
		return t.openEmbedded(ctx)
	}
	if err := conn.Close(); err != nil {
		return nil, nil, err
	}
	kept, err := etcdstore.Open(ctx, etcdstore.Config{Endpoints: []string{endpoint}, Cluster: t.c.Cluster, Logger: t.log})
	if err != nil {
		return nil, nil, err
	}
	return kept, kept.Close, nil
}

// adopt has the data folder know the store's records as its own.
func (t transfer) adopt(ctx context.Context) (err error) {
	if err := t.owner(); err != nil {
		return err
	}
	open := t.openStopped
	if t.c.Etcd.external() {
		open = t.openSource
	}
	kept, closeKept, err := open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeKept()) }()
	if _, err := site.Adopt(ctx, kept, t.c.place()); err != nil {
		return err
	}
	fmt.Fprintf(t.out, "%s takes the records in %s as its own\n", t.c.DataDir, t.c.place().Store)
	return nil
}

// key makes the key file.
func (t transfer) key() error {
	if err := t.owner(); err != nil {
		return err
	}
	file := t.c.storeKeyFile()
	made := sealed.MakeKey(file)
	if made != nil && !errors.Is(made, fs.ErrExist) {
		return made
	}
	id, err := sealed.KeyID(file)
	if err != nil {
		return err
	}
	was := "is new"
	if made != nil {
		was = "was there"
	}
	fmt.Fprintf(t.out, "%s has the key %s, which %s: copy it to the hosts of the other brokers, and keep a copy\n", file, id, was)
	return nil
}

// dropAuthorities removes what is no longer to be believed.
func (t transfer) dropAuthorities(ctx context.Context, all bool) (err error) {
	open := t.openRestored
	if t.c.Etcd.external() {
		open = func(ctx context.Context) (site.Target, func() error, error) {
			return t.openTarget(ctx, "drop-authorities")
		}
	}
	target, closeTarget, err := open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeTarget()) }()
	records, _, err := target.Store.List(ctx, pki.AuthorityPrefix)
	if err != nil {
		return err
	}
	var writes []store.Write
	for i, rec := range records {
		if all || i < len(records)-1 {
			writes = append(writes, store.Write{Key: rec.Key, Delete: true, Expect: rec.Revision})
		}
	}
	removed := len(writes)
	if all {
		writes = append(writes, store.Write{Key: sealed.KeyRecord, Delete: true, Expect: store.AnyRevision})
	}
	if _, err := target.Store.Commit(ctx, writes...); err != nil {
		return err
	}
	fmt.Fprintf(t.out, "%d of %d keys of the authority removed from %s; start the broker\n", removed, len(records), target.Place.Store)
	return nil
}
