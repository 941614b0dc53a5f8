// SPDX-License-Identifier: Apache-2.0

// Package etcdserver runs one etcd inside this process, for brokers without an external cluster.
//
// The server is private: it has no peer port, and it listens on a unix socket in a directory that only its owner can
// enter. etcd without passwords gives full access to every client, and a loopback port is open to every user of the
// host. Clients use Endpoint like any other etcd endpoint.
//
// etcd ends the whole process when it cannot write its log to disk. That is intended: nothing was acknowledged, and a
// restarted broker continues.
package etcdserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/atomicfile"
)

// Defaults of Config.
const (
	DefaultQuota     = 512 << 20
	DefaultRetention = 10 * time.Second
	DefaultTend      = time.Minute

	memberName      = "broker"
	dataDir         = "etcd"
	peerPlaceholder = "http://localhost:2380" // recorded in the data, never listened on or dialled
	maxSocketPath   = 107                     // of sockaddr_un
	// A single member can elect itself at once; a delay only slows the start (etcd's default: up to a second).
	tickMs, electionMs = 20, 100

	// Commits between snapshots on disk. A start replays those since the last one; when they are more than a hundred, etcd
	// 3.7.3 drops the first of them from memory as soon as all are applied, and panics where its election happens to look
	// for that one in this moment ("error scanning unapplied entries", seen once in a restart after a kill).
	snapshotCount = 50

	// Commits that raft keeps in memory, for followers: there are none. More than a start replays, see snapshotCount.
	catchUpEntries = 2 * snapshotCount

	defragAtLeast = 16 // MB that must be gained for a defragmentation
)

// Config of an embedded server.
type Config struct {
	// Dir holds everything: the lock, the socket and etcd's data. It is made
	// if it does not exist, and closed to other users.
	Dir string
	// Quota is the maximum size of the database on disk, in bytes.
	Quota int64
	// Retention is how long history is kept, which a list of many pages reads. etcd drops older history after as long
	// again. More would let many writes fill the database, which then rejects every write.
	Retention time.Duration
	// Tend is the pause between looks at the room that compaction freed.
	Tend time.Duration
	// Logger gets etcd's messages, its chatty Info level as Debug.
	Logger *slog.Logger
}

// Server is a running embedded etcd.
type Server struct {
	etcd     *embed.Etcd
	lock     *lock
	endpoint string
	stop     func() // the tender

	closeOnce sync.Once
	closeErr  error
}

// Start prepares the directory, starts etcd on it and returns when it serves. It returns ErrInUse if another process
// uses the directory. If ctx ends first, it stops everything again.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	cfg = cfg.withDefaults()
	if err := prepareDir(cfg.Dir); err != nil {
		return nil, fmt.Errorf("etcd directory %q: %w", cfg.Dir, err)
	}
	lock, err := lockDir(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("etcd directory %q: %w", cfg.Dir, err)
	}
	server, err := start(ctx, cfg, lock)
	if err != nil {
		return nil, fmt.Errorf("etcd directory %q: %w", cfg.Dir, errors.Join(err, lock.release()))
	}
	return server, nil
}

func start(ctx context.Context, cfg Config, lock *lock) (*Server, error) {
	socket, err := cfg.socket()
	if err != nil {
		return nil, err
	}
	if err := begin(cfg.Dir); err != nil {
		return nil, err
	}
	etcd, err := embed.StartEtcd(cfg.embedConfig(socket))
	if err != nil {
		return nil, err
	}
	select {
	case <-etcd.Server.ReadyNotify():
		if err = errors.Join(begun(cfg.Dir), disarm(ctx, etcd, cfg.Quota)); err == nil {
			return &Server{etcd: etcd, lock: lock, endpoint: socket.String(), stop: tend(etcd, cfg)}, nil
		}
	case err = <-etcd.Err():
	case <-etcd.Server.StopNotify():
		err = errors.New("stopped while starting")
	case <-ctx.Done():
		err = fmt.Errorf("not ready in time: %w", ctx.Err())
	}
	etcd.Server.HardStop() // else Close waits for a server that is not ready
	etcd.Close()
	return nil, err
}

// beginning is there while the data is made. A server that is killed then has a log without the entry that makes it a
// member, and never elects itself. It has served nobody, so the next start makes the data anew.
const beginning = "beginning"

func begin(dir string) error {
	mark := filepath.Join(dir, beginning)
	if _, err := os.Stat(mark); err == nil {
		return os.RemoveAll(filepath.Join(dir, dataDir))
	}
	if HasData(dir) {
		return nil
	}
	return atomicfile.Write(mark, nil, 0o600)
}

func begun(dir string) error {
	err := os.Remove(filepath.Join(dir, beginning))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return errors.Join(err, atomicfile.SyncDir(dir))
}

// Endpoint is where clients connect.
func (s *Server) Endpoint() string { return s.endpoint }

// Close stops the server, waits until its data is closed, and frees the
// directory. Clients should be closed before. Closing twice is fine.
func (s *Server) Close() error {
	s.closeOnce.Do(func() {
		s.stop()
		s.etcd.Close()
		s.closeErr = s.lock.release()
	})
	return s.closeErr
}

func (cfg Config) withDefaults() Config {
	cfg.Quota = cmp.Or(cfg.Quota, DefaultQuota)
	cfg.Retention = cmp.Or(cfg.Retention, DefaultRetention)
	cfg.Tend = cmp.Or(cfg.Tend, DefaultTend)
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	return cfg
}

// Endpoint is where the server of a folder listens, if one runs.
func Endpoint(dir string) (string, error) {
	socket, err := Config{Dir: dir}.socket()
	if err != nil {
		return "", err
	}
	return socket.String(), nil
}

// HasData reports whether a folder has the data of a server that has served.
func HasData(dir string) bool {
	_, none := os.Stat(filepath.Join(dir, dataDir, "member"))
	_, begun := os.Stat(filepath.Join(dir, beginning))
	return none == nil && begun != nil
}

// socket is where clients connect.
func (cfg Config) socket() (*url.URL, error) {
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "client.sock")
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("socket path %q is longer than %d bytes", path, maxSocketPath)
	}
	return &url.URL{Scheme: "unix", Path: path}, nil
}

func (cfg Config) embedConfig(socket *url.URL) *embed.Config {
	peer, err := url.Parse(peerPlaceholder)
	if err != nil {
		panic(err) // a constant
	}
	c := embed.NewConfig()
	c.Name = memberName
	c.Dir = filepath.Join(cfg.Dir, dataDir)
	c.ListenPeerUrls = nil
	c.AdvertisePeerUrls = []url.URL{*peer}
	c.InitialCluster = memberName + "=" + peerPlaceholder
	c.ListenClientUrls = []url.URL{*socket}
	c.AdvertiseClientUrls = []url.URL{*socket}
	c.EnableGRPCGateway = false
	c.TickMs, c.ElectionMs = tickMs, electionMs
	c.SnapshotCount = snapshotCount
	c.SnapshotCatchUpEntries = catchUpEntries
	c.QuotaBackendBytes = cfg.Quota
	c.AutoCompactionMode = embed.CompactorModePeriodic
	c.AutoCompactionRetention = cfg.Retention.String()
	c.BootstrapDefragThresholdMegabytes = defragAtLeast
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(bridge(cfg.Logger))
	return c
}

// prepareDir creates the directory and makes it private.
func prepareDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return os.Chmod(dir, 0o700)
}

// ErrInUse means that another process runs on the directory.
var ErrInUse = errors.New("in use by another broker")

// lock is a lock file. The kernel releases it when its owner dies, so a leftover file blocks nothing. The pid in it is
// for administrators.
type lock struct{ file *os.File }

func lockDir(dir string) (*lock, error) {
	path := filepath.Join(dir, "lock")
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = fmt.Errorf("%w (process %s)", ErrInUse, owner(file))
		}
		return nil, errors.Join(err, file.Close())
	}
	l := &lock{file}
	if err := l.sign(); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %q: %w", path, err), file.Close())
	}
	return l, nil
}

func (l *lock) sign() error {
	if err := l.file.Truncate(0); err != nil {
		return err
	}
	_, err := l.file.WriteAt([]byte(fmt.Sprintln(os.Getpid())), 0)
	return err
}

// release keeps the file: after a removal two processes could lock two files of the same name.
func (l *lock) release() error { return l.file.Close() }

func owner(file *os.File) string {
	text, err := io.ReadAll(io.LimitReader(file, 32))
	if pid := strings.TrimSpace(string(text)); err == nil && pid != "" {
		return pid
	}
	return "unknown"
}

// bridge sends etcd's log to slog. etcd's Info becomes Debug; zap still ends the process after a Fatal.
func bridge(log *slog.Logger) *zap.Logger {
	return zap.New(&core{log.Handler().WithAttrs([]slog.Attr{slog.String("component", "etcd")})})
}

type core struct{ handler slog.Handler }

// Fatal is the level of messages with which etcd ends the process.
const Fatal = slog.LevelError + 4

// level is four times zap's, but for what etcd says at Info and below.
func level(l zapcore.Level) slog.Level {
	if l <= zapcore.InfoLevel {
		return slog.LevelDebug + 4*slog.Level(l)
	}
	return min(4*slog.Level(l), Fatal)
}

func (c *core) Enabled(l zapcore.Level) bool {
	return c.handler.Enabled(context.Background(), level(l))
}

func (c *core) With(fields []zapcore.Field) zapcore.Core {
	return &core{c.handler.WithAttrs(attrs(fields))}
}

func (c *core) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(entry.Level) {
		return checked.AddCore(entry, c)
	}
	return checked
}

func (c *core) Write(entry zapcore.Entry, fields []zapcore.Field) error {
	record := slog.NewRecord(entry.Time, level(entry.Level), entry.Message, 0)
	record.AddAttrs(attrs(fields)...)
	return c.handler.Handle(context.Background(), record)
}

func (c *core) Sync() error { return nil }

// attrs lets zap encode a field, which is the only way to read it.
func attrs(fields []zapcore.Field) []slog.Attr {
	out := make([]slog.Attr, 0, len(fields))
	for _, field := range fields {
		encoder := zapcore.NewMapObjectEncoder()
		field.AddTo(encoder)
		for key, value := range encoder.Fields {
			out = append(out, slog.Any(key, value))
		}
	}
	return out
}
