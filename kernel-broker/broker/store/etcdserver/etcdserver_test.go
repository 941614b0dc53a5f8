// SPDX-License-Identifier: Apache-2.0

package etcdserver_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store/etcdserver"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store/etcdstore"
)

var quiet = slog.New(slog.DiscardHandler)

func startServer(t *testing.T, cfg etcdserver.Config) *etcdserver.Server {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if cfg.Logger == nil {
		cfg.Logger = quiet
	}
	server, err := etcdserver.Start(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	return server
}

func openStore(t *testing.T, server *etcdserver.Server) *etcdstore.Store {
	t.Helper()
	s, err := etcdstore.Open(t.Context(), etcdstore.Config{
		Endpoints: []string{server.Endpoint()}, Cluster: "test", Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func put(t *testing.T, s store.Store, key, value string) {
	t.Helper()
	if _, err := s.Commit(t.Context(), store.Write{Key: key, Value: []byte(value), Expect: store.AnyRevision}); err != nil {
		t.Fatal(err)
	}
}

func TestDataSurvivesCloseAndMove(t *testing.T) {
	first, second := filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "b")
	server := startServer(t, etcdserver.Config{Dir: first})
	s := openStore(t, server)
	put(t, s, "k", "v")
	if err := errors.Join(s.Close(), server.Close(), server.Close()); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(first, second); err != nil {
		t.Fatal(err)
	}
	s = openStore(t, startServer(t, etcdserver.Config{Dir: second}))
	if r, err := s.Get(t.Context(), "k"); err != nil || string(r.Value) != "v" {
		t.Errorf("Get after restart = %q, %v", r.Value, err)
	}
}

// A server that is killed has a snapshot on disk, and few commits since then to replay: with more than a hundred etcd may
// panic at its start.
func TestFewCommitsAreReplayed(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, startServer(t, etcdserver.Config{Dir: dir}))
	for i := range 100 {
		put(t, s, "k", strconv.Itoa(i))
	}
	if found, err := filepath.Glob(filepath.Join(dir, "etcd/member/snap/*.snap")); err != nil || len(found) == 0 {
		t.Errorf("snapshots %v, %v", found, err)
	}
}

func TestOnlyTheOwnerCanConnect(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	server := startServer(t, etcdserver.Config{Dir: dir})
	if want := "unix://" + filepath.Join(dir, "client.sock"); server.Endpoint() != want {
		t.Errorf("Endpoint = %q, want %q", server.Endpoint(), want)
	}
	info, err := os.Stat(dir)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("directory mode %v, %v; want 0700", info.Mode(), err)
	}
	if listening := tcpListeners(t); len(listening) > 0 {
		t.Errorf("the process listens on TCP: %v", listening)
	}
}

// tcpListeners are the local addresses of this process's listening sockets.
func tcpListeners(t *testing.T) []string {
	t.Helper()
	mine := map[string]bool{}
	fds, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		if target, err := os.Readlink(fd); err == nil && strings.HasPrefix(target, "socket:[") {
			mine[strings.Trim(target, "socket:[]")] = true
		}
	}
	var found []string
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, err := os.ReadFile(table)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			f := strings.Fields(line)
			if len(f) > 9 && f[3] == "0A" && mine[f[9]] {
				found = append(found, f[1])
			}
		}
	}
	return found
}

func TestLongSocketPath(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("x", 107))
	server, err := etcdserver.Start(t.Context(), etcdserver.Config{Dir: dir, Logger: quiet})
	if err == nil {
		t.Errorf("accepted: %v", server.Close())
	} else if !strings.Contains(err.Error(), "socket path") {
		t.Error(err)
	}
}

func TestSecondServerIsRefused(t *testing.T) {
	dir := t.TempDir()
	server := startServer(t, etcdserver.Config{Dir: dir})
	began := time.Now()
	_, err := etcdserver.Start(t.Context(), etcdserver.Config{Dir: dir, Logger: quiet})
	if !errors.Is(err, etcdserver.ErrInUse) {
		t.Fatalf("second Start = %v, want ErrInUse", err)
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("the refusal took %v", took)
	}
	for _, want := range []string{dir, "process " + strconv.Itoa(os.Getpid())} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not name %q", err, want)
		}
	}
	put(t, openStore(t, server), "k", "still served")
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	startServer(t, etcdserver.Config{Dir: dir})
}

func TestStartEndsWithContext(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := etcdserver.Start(ctx, etcdserver.Config{Dir: dir, Logger: quiet}); !errors.Is(err, context.Canceled) {
		t.Fatalf("Start = %v, want context.Canceled", err)
	}
	startServer(t, etcdserver.Config{Dir: dir}) // the directory is not locked
}

func TestLogIsBridged(t *testing.T) {
	var log bytes.Buffer
	server := startServer(t, etcdserver.Config{Dir: t.TempDir(),
		Logger: slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	text := log.String()
	for _, want := range []string{`"component":"etcd"`, `"level":"DEBUG"`, `"msg":"starting an etcd server"`, `"etcd-version":"3.`} {
		if !strings.Contains(text, want) {
			t.Errorf("log has no %s", want)
		}
	}
	if strings.Contains(text, `"level":"INFO"`) {
		t.Error("etcd's internal messages are logged at Info")
	}
}

// compact drops the history before a revision, and returns when its room is free.
func compact(t *testing.T, server *etcdserver.Server, revision int64) error {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{server.Endpoint()}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.Compact(t.Context(), revision, clientv3.WithCompactPhysical())
	return errors.Join(err, client.Close())
}

// fill writes one record until the store is full. It returns the next write to another store, and the newest revision.
func fill(t *testing.T, s *etcdstore.Store) (write func(*etcdstore.Store) error, newest int64) {
	t.Helper()
	write = func(s *etcdstore.Store) error {
		_, err := s.Commit(t.Context(), store.Write{Key: "k", Value: make([]byte, 512<<10), Expect: store.AnyRevision})
		return err
	}
	var err error
	for i := 0; i < 100 && err == nil; i++ {
		err = write(s)
	}
	if !errors.Is(err, store.ErrFull) || errors.Is(err, store.ErrUnavailable) {
		t.Fatalf("writing past the quota = %v, want ErrFull", err)
	}
	r, err := s.Get(t.Context(), "k")
	if err != nil {
		t.Fatalf("a full store must still be readable: %v", err)
	}
	return write, r.Revision
}

// TestQuota fills a store with old values. It stays readable, and after compaction and a restart it accepts writes
// again.
func TestQuota(t *testing.T) {
	cfg := etcdserver.Config{Dir: t.TempDir(), Quota: 20 << 20, Retention: time.Hour}
	server := startServer(t, cfg)
	s := openStore(t, server)
	write, newest := fill(t, s)
	if err := errors.Join(s.Close(), server.Close()); err != nil {
		t.Fatal(err)
	}
	server = startServer(t, cfg)
	s = openStore(t, server)
	if err := write(s); !errors.Is(err, store.ErrFull) {
		t.Fatalf("a restart alone makes no room, Commit = %v", err)
	}
	if err := errors.Join(compact(t, server, newest), s.Close(), server.Close()); err != nil {
		t.Fatal(err)
	}
	s = openStore(t, startServer(t, cfg))
	if err := write(s); err != nil {
		t.Fatalf("after compaction and a restart: %v", err)
	}
}

// TestHistoryIsDropped writes one record again and again, several times the quota in total.
func TestHistoryIsDropped(t *testing.T) {
	const quota, size, rounds = 32 << 20, 128 << 10, 30
	s := openStore(t, startServer(t, etcdserver.Config{Dir: t.TempDir(), Quota: quota, Retention: 100 * time.Millisecond}))
	put(t, s, "other", "kept")
	for round := range rounds {
		for range 20 {
			if _, err := s.Commit(t.Context(), store.Write{Key: "k", Value: make([]byte, size), Expect: store.AnyRevision}); err != nil {
				t.Fatalf("round %d of %d: %v", round+1, rounds, err)
			}
		}
		for end := time.Now().Add(time.Minute); gauge(t, "etcd_mvcc_db_total_size_in_use_in_bytes") > quota*2/5; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("round %d of %d: the history is not dropped", round+1, rounds)
			}
			put(t, s, "other", "kept") // etcd measures its size when it commits
		}
	}
	t.Logf("%d bytes written, the database takes %.0f of %d", rounds*20*size, gauge(t, "etcd_mvcc_db_total_size_in_bytes"), quota)
	if r, err := s.Get(t.Context(), "other"); err != nil || string(r.Value) != "kept" {
		t.Errorf("the current record: %q, %v", r.Value, err)
	}
}

func gauge(t *testing.T, name string) float64 {
	t.Helper()
	families, err := prometheus.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == name {
			return family.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("etcd has no %s any more", name)
	return 0
}

// child runs this test binary again as another program, see TestMain.
func child(t *testing.T, role string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), "ETCDSERVER_TEST_ROLE="+role)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // also when this test is killed
	return cmd
}

// TestCommitsAreSynced counts the syncs of the write-ahead log: sequential
// commits cannot share one, so each has its own.
func TestCommitsAreSynced(t *testing.T) {
	const commits = 20
	s := openStore(t, startServer(t, etcdserver.Config{Dir: t.TempDir()}))
	before := walSyncs(t)
	for i := range commits {
		put(t, s, "k", strconv.Itoa(i))
	}
	if synced := walSyncs(t) - before; synced < commits {
		t.Errorf("%d syncs for %d commits", synced, commits)
	}
}

func walSyncs(t *testing.T) uint64 {
	t.Helper()
	families, err := prometheus.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == "etcd_disk_wal_fsync_duration_seconds" {
			return family.GetMetric()[0].GetHistogram().GetSampleCount()
		}
	}
	t.Fatal("etcd does not count its syncs any more")
	return 0
}
