// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store/etcdstore"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store/site"
	"github.com/kernelbroker/kernelbroker/tests/support/etcdtest"
)

// built is the folder of the broker's program, which starts in a tenth of the time of a test with the race detector.
var built = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "kernel-broker")
	if err != nil {
		return "", err
	}
	if out, err := exec.Command("go", "build", "-o", dir, ".").CombinedOutput(); err != nil {
		return dir, fmt.Errorf("%w: %s", err, out)
	}
	return dir, nil
})

var wasBuilt atomic.Bool

func TestMain(m *testing.M) {
	code := m.Run()
	if wasBuilt.Load() {
		dir, _ := built()
		_ = os.RemoveAll(dir)
	}
	os.Exit(code)
}

var quiet = slog.New(slog.DiscardHandler)

// host is a broker's host with its data folder.
type host struct {
	t *testing.T
	c config
	// external names the etcd in broker.yaml.
	external string
	tls      string
}

func newHost(t *testing.T) *host {
	h := &host{t: t, c: defaults()}
	h.c.Cluster, h.c.DataDir = "hpc", t.TempDir()
	return h
}

// config is the configuration, as it is read from broker.yaml.
func (h *host) config() config {
	h.t.Helper()
	c, err := load(h.yaml())
	if err != nil {
		h.t.Fatal(err)
	}
	return c
}

func (h *host) yaml() string {
	h.t.Helper()
	endpoints := "[]"
	if h.external != "" {
		endpoints = "['" + h.external + "']"
	}
	return write(h.t, fmt.Sprintf("cluster: %s\ndata_dir: %s\nsocket: %s/socket\nlisten: 127.0.0.1:0\nsnapshot: ''\ntls: %[5]s\npolicy: ''\nslurm: {user: root, bin_dir: /none}\netcd: {endpoints: %[4]s}\n",
		h.c.Cluster, h.c.DataDir, h.t.TempDir(), endpoints, cmp.Or(h.tls, "{mode: none}")))
}

// run runs a command in this process.
func (h *host) run(args ...string) (string, error) {
	h.t.Helper()
	return run1(h.t, append(args, "--config", h.yaml())...)
}

func (h *host) must(words string, args ...string) {
	h.t.Helper()
	if out, err := h.run(args...); err != nil || !strings.Contains(out, words) {
		h.t.Fatalf("%v: %q, %v; want %q", args, out, err, words)
	}
}

func (h *host) fails(words string, args ...string) {
	h.t.Helper()
	if out, err := h.run(args...); err == nil || !strings.Contains(err.Error(), words) {
		h.t.Errorf("%v: %q, %v; want %q", args, out, err, words)
	}
}

// program is a command in a process of its own.
func (h *host) program(args ...string) *exec.Cmd {
	h.t.Helper()
	wasBuilt.Store(true)
	dir, err := built()
	if err != nil {
		h.t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(dir, "kernel-broker"), append(args, "--config", h.yaml())...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // also when this test is killed
	return cmd
}

// killed runs a command and kills it within a time, from its start or from what it has begun with. It reports whether that
// came too late.
func (h *host) killed(within time.Duration, begins func(context.Context), args ...string) (ended bool) {
	h.t.Helper()
	cmd := h.program(args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	ctx, cancel := context.WithCancel(h.t.Context())
	var killing sync.WaitGroup
	defer killing.Wait()
	defer cancel()
	ready := make(chan struct{})
	killing.Go(func() {
		<-ready
		if begins != nil {
			begins(ctx)
		}
		select {
		case <-ctx.Done():
		case <-time.After(rand.N(within)):
			_ = cmd.Process.Kill()
		}
	})
	err := cmd.Start()
	close(ready)
	if err != nil {
		h.t.Fatal(err)
	}
	err = cmd.Wait()
	switch {
	case err == nil || err.Error() == "signal: killed":
	case strings.Contains(out.String(), "unavailable") || strings.Contains(out.String(), "lease lost"):
		h.t.Logf("%v: a slow machine broke it off: %s", args, out.String())
	default:
		h.t.Fatalf("%v: %v: %s", args, err, out.String())
	}
	return err == nil
}

// writing waits for the first write to the target: to an etcd, or for the embedded one's socket.
func (h *host) writing(etcd *etcdtest.Server) func(context.Context) {
	if h.external == "" {
		socket := filepath.Join(h.c.DataDir, "etcd", "client.sock")
		return func(ctx context.Context) {
			for _, err := os.Stat(socket); err != nil && ctx.Err() == nil; _, err = os.Stat(socket) {
				time.Sleep(time.Millisecond)
			}
		}
	}
	client := etcd.Client("")
	return func(ctx context.Context) {
		<-client.Watch(ctx, "/kernel-broker/hpc/site", clientv3.WithCreatedNotify())
		<-client.Watch(ctx, "/kernel-broker/hpc/site")
	}
}

// open opens the store of the configuration, without a broker.
func (h *host) open() (*etcdstore.Store, func()) {
	h.t.Helper()
	kept, closeKept, err := openStore(h.t.Context(), h.config(), quiet)
	if err != nil {
		h.t.Fatal(err)
	}
	return kept, func() {
		h.t.Helper()
		if err := closeKept(); err != nil {
			h.t.Error(err)
		}
	}
}

const large = "test/large"

// fill makes the embedded store that of a site with records.
func (h *host) fill() {
	h.t.Helper()
	kept, done := h.open()
	defer done()
	if err := claimSite(h.t.Context(), h.config(), kept, quiet); err != nil {
		h.t.Fatal(err)
	}
	var writes []store.Write
	for i := range 300 {
		writes = append(writes, store.Write{Key: fmt.Sprintf("test/%05d", i), Value: bytes.Repeat([]byte{byte(i)}, i*20), Expect: store.AnyRevision})
	}
	writes = append(writes, store.Write{Key: large, Value: bytes.Repeat([]byte("x"), 900<<10), Expect: store.AnyRevision}, store.Write{Key: "test/none", Expect: store.AnyRevision})
	for _, part := range store.Split(writes, kept.Limits()) {
		if _, err := kept.Commit(h.t.Context(), part...); err != nil {
			h.t.Fatal(err)
		}
	}
}

// records are those of a store, with the revision of the whole.
func records(t *testing.T, kept *etcdstore.Store) (map[string]string, int64) {
	t.Helper()
	list, at, err := kept.List(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, r := range list {
		if r.Key != site.Key && !store.Own(r.Key) {
			all[r.Key] = string(r.Value)
		}
	}
	return all, at
}

func (h *host) records() (map[string]string, int64) {
	h.t.Helper()
	kept, done := h.open()
	defer done()
	return records(h.t, kept)
}

// look reads the records, and reports whether they are marked as whole, and why a broker would not begin with them.
func (h *host) look() (all map[string]string, whole bool, refused error) {
	h.t.Helper()
	kept, done := h.open()
	defer done()
	id, _, err := site.Read(h.t.Context(), kept)
	if err != nil {
		h.t.Fatal(err)
	}
	all, _ = records(h.t, kept)
	return all, id != nil && id.Unfinished == "", site.Check(h.t.Context(), kept, h.config().place())
}

// done reports that a store has what it should have, and that a broker begins with it.
func (h *host) done(want map[string]string) {
	h.t.Helper()
	if got, whole, refused := h.look(); !whole || refused != nil || !maps.Equal(got, want) {
		h.t.Errorf("%d records of %d, whole %v, a broker says %v", len(got), len(want), whole, refused)
	}
}

// killedPart looks at what a killed command left. It reports whether that is whole.
func (h *host) killedPart(want map[string]string, parts *int) (whole bool) {
	h.t.Helper()
	got, whole, refused := h.look()
	switch {
	case whole && (refused != nil || !maps.Equal(got, want)):
		h.t.Fatalf("it is marked as whole with %d records of %d, and a broker says %v", len(got), len(want), refused)
	case !whole && len(got) > 0 && refused == nil:
		h.t.Fatalf("a broker begins with %d records of %d", len(got), len(want))
	case !whole && len(got) > 0:
		*parts++
	}
	return whole
}

// begins runs a broker, and returns why it does not serve.
func (h *host) begins() error {
	h.t.Helper()
	c := h.config()
	ctx, cancel := context.WithCancel(h.t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, c, quiet) }()
	for {
		if _, err := os.Stat(c.Socket); err == nil {
			cancel()
			return <-ended
		}
		select {
		case err := <-ended:
			return errors.Join(err, errors.New("it ends"))
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (h *host) refuses(words string) {
	h.t.Helper()
	if err := h.begins(); err == nil || !strings.Contains(err.Error(), words) {
		h.t.Errorf("the broker says %v, want %q", err, words)
	}
}

func (h *host) serves() {
	h.t.Helper()
	if err := h.begins(); err != nil {
		h.t.Errorf("the broker says %v", err)
	}
}

// A site moves to an etcd and back. A broker begins on the store that has the records, and on no other.
func TestSiteMoves(t *testing.T) {
	etcd := etcdtest.Start(t, etcdtest.Options{})
	h := newHost(t)
	h.fill()
	h.serves()
	want, _ := h.records()

	h.fails("etcd.endpoints of broker.yaml is empty", "store", "move")
	h.must("etcd.endpoints names no etcd", "store", "check")
	h.external = etcd.Endpoint
	h.fails("run kernel-broker store move", "store", "check")
	h.refuses("run kernel-broker store move")
	h.must("are in etcd", "store", "move")
	if got, _ := h.records(); !maps.Equal(got, want) {
		t.Errorf("%d records are moved, of %d", len(got), len(want))
	}
	h.must("already", "store", "move")
	h.serves()
	h.must("the records are this site's", "store", "check")

	h.external = ""
	h.refuses("etcd.endpoints names none: name it again")
	// Back again.
	h.external = etcd.Endpoint
	backup := filepath.Join(t.TempDir(), "backup")
	h.must("records of hpc at revision", "store", "backup", backup)
	h.external = ""
	h.fails("not empty", "store", "restore", backup)
	if err := os.RemoveAll(h.config().etcdDir()); err != nil {
		t.Fatal(err)
	}
	h.must("start the broker", "store", "restore", backup)
	h.serves()
	if got, _ := h.records(); len(got) < len(want) || got[large] != want[large] {
		t.Errorf("%d records are back, of %d", len(got), len(want))
	}
	h.external = etcd.Endpoint
	h.refuses("run kernel-broker store move")
	h.fails("not empty", "store", "move") // which are old by now
	h.must("takes the records in etcd", "store", "adopt")
	h.serves()
}

// Nothing is written where a broker acts, nor over what somebody has.
func TestStoreCommandsRefuse(t *testing.T) {
	etcd := etcdtest.Start(t, etcdtest.Options{})
	h, other := newHost(t), newHost(t)
	h.fails("has no data", "store", "backup", filepath.Join(t.TempDir(), "none"))
	h.fill()
	backup := filepath.Join(t.TempDir(), "backup")
	h.must("SHA-256", "store", "backup", backup)
	if info, err := os.Stat(backup); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	h.fails("name a new file", "store", "backup", backup)

	// A broker runs.
	_, done := h.open()
	again := filepath.Join(t.TempDir(), "again")
	h.must("SHA-256", "store", "backup", again)
	h.fails("stop the broker first", "store", "restore", backup)
	h.external = etcd.Endpoint
	h.fails("stop the broker first", "store", "move")
	done()

	other.c.Cluster = "other"
	other.fails(`the records of the cluster "hpc", and broker.yaml is of "other"`, "store", "restore", backup)
	other.c.Cluster, other.external = "hpc", etcd.Endpoint
	other.must("start the broker", "store", "restore", backup)
	other.fails("not empty", "store", "restore", backup)
	h.fails("not empty", "store", "move")
	// A second data folder of this name is not the site's.
	h.external = ""
	if err := os.Remove(filepath.Join(h.c.DataDir, site.File)); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(h.config().etcdDir()); err != nil {
		t.Fatal(err)
	}
	h.external = etcd.Endpoint
	h.refuses("kernel-broker store adopt")
	h.must("as its own", "store", "adopt")
	h.serves()

	// A broker acts.
	acting, closeActing := h.open()
	defer closeActing()
	if err := acting.Lead(t.Context(), etcdstore.Claim{Holder: "the broker of ctl1", Place: "there"}); err != nil {
		t.Fatal(err)
	}
	h.must("a broker acts: the broker of ctl1", "store", "check")
	impatient := transfer{c: h.config(), out: io.Discard, err: io.Discard, progress: func(string, int, int) {}, log: quiet, patience: time.Second}
	if err := impatient.restore(t.Context(), backup); err == nil || !strings.Contains(err.Error(), "a broker acts on it: the broker of ctl1: stop it") {
		t.Errorf("a restore where a broker acts: %v", err)
	}
	for _, bad := range []string{filepath.Join(t.TempDir(), "none"), h.yaml(), "/dev/zero"} {
		h.fails("backup", "store", "restore", bad)
	}
}

// Files of the data folder stay those of the broker's user.
func TestStoreCommandsAreTheOwners(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to have a data folder of another user")
	}
	h := newHost(t)
	h.fill()
	backup := filepath.Join(t.TempDir(), "backup")
	h.must("SHA-256", "store", "backup", backup)
	if err := os.Chown(h.c.DataDir, 65534, -1); err != nil {
		t.Fatal(err)
	}
	h.fails("run this as that user, with runuser -u nobody", "store", "backup", backup+"2")
	h.fails("runuser -u nobody", "store", "restore", backup)
	h.external = "http://127.0.0.1:1"
	h.fails("runuser -u nobody", "store", "move")
	h.fails("runuser -u nobody", "store", "adopt")
}

const kills = 20
