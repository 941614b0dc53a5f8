// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store/etcdserver"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store/etcdstore"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store/site"
	"github.com/kernelbroker/kernelbroker/tests/support/etcdtest"
)

// A move that is killed again and again is finished by the next one. Until then no broker begins in the etcd, and the
// embedded store is as it was.
func TestMoveIsKilled(t *testing.T) {
	etcd := etcdtest.Start(t, etcdtest.Options{})
	h := newHost(t)
	h.fill()
	want, at := h.records()
	folder, err := os.ReadFile(filepath.Join(h.c.DataDir, site.File))
	if err != nil {
		t.Fatal(err)
	}
	h.external = etcd.Endpoint
	again := func() { // from the beginning
		if _, err := etcd.Client("").Delete(t.Context(), "", etcdtest.All); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(h.c.DataDir, site.File), folder, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	h.killedOften(etcd, kills, want, again, "store", "move")
	h.must("", "store", "move")
	h.done(want)
	h.external = ""
	if got, after := h.records(); !maps.Equal(got, want) || after != at {
		t.Errorf("the embedded store is at revision %d, and was at %d", after, at)
	}
}

// killedOften kills a command at random moments, so many times, half of them after its first write. What it leaves is whole,
// or no broker begins with it.
func (h *host) killedOften(etcd *etcdtest.Server, times int, want map[string]string, again func(), args ...string) {
	h.t.Helper()
	again()
	h.program() // builds it
	begun, writing := time.Now(), time.Now()
	begins := h.writing(etcd)
	h.killed(time.Hour, func(ctx context.Context) { begins(ctx); writing = time.Now() }, args...)
	takes, writes := time.Since(begun), time.Since(writing)
	h.done(want)
	again()
	parts := 0
	for n := 0; n < times; n++ {
		within, begins := takes, (func(context.Context))(nil)
		if n%2 == 0 {
			within, begins = writes, h.writing(etcd)
		}
		if h.killed(within, begins, args...) {
			n--
			again()
		} else if h.killedPart(want, &parts) {
			again()
		}
	}
	h.t.Logf("%v takes %v, and writes for %v; %d of %d kills left a part", args[:2], takes, writes, parts, times)
	if parts == 0 {
		h.t.Error("no kill came in the middle")
	}
}

// A backup that is killed leaves no file of that name, or a whole one, of one moment of a broker that writes.
func TestBackupIsKilled(t *testing.T) {
	h := newHost(t)
	h.fill()
	kept, done := h.open()
	defer done()
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan error)
	go func() {
		var err error
		for i := 0; err == nil; i++ {
			text := fmt.Appendf(nil, "%d", i)
			_, err = kept.Commit(ctx, store.Write{Key: "a/first", Value: text, Expect: store.AnyRevision}, store.Write{Key: "z/last", Value: text, Expect: store.AnyRevision})
		}
		stopped <- err
	}()
	defer func() {
		cancel()
		if err := <-stopped; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}()
	dir := t.TempDir()
	whole := func(path string) {
		t.Helper()
		b, err := site.OpenBackup(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		all := map[string]string{}
		for r, err := range b.Source().Records(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			all[r.Key] = string(r.Value)
		}
		if len(all) != 304 || all["a/first"] != all["z/last"] || all[large] == "" {
			t.Errorf("%d records; the first is %s, the last %s", len(all), all["a/first"], all["z/last"])
		}
	}
	h.program() // builds it
	begun := time.Now()
	h.killed(time.Hour, nil, "store", "backup", filepath.Join(dir, "first"))
	takes := time.Since(begun)
	whole(filepath.Join(dir, "first"))
	missing, files := 0, 0
	for n := range kills {
		path := filepath.Join(dir, fmt.Sprint(files))
		h.killed(takes, nil, "store", "backup", path)
		switch _, err := os.Stat(path); {
		case err != nil:
			missing++
		default:
			files++
			whole(path)
		}
		if n == kills-1 {
			h.killed(time.Hour, nil, "store", "backup", path+"-last")
			whole(path + "-last")
		}
	}
	t.Logf("one backup takes %v; %d of %d kills left no file", takes, missing, kills)
}

// A restore that is killed again and again is finished by the next one, in the embedded store and in an etcd. Until then no
// broker begins there.
func TestRestoreIsKilled(t *testing.T) {
	etcd := etcdtest.Start(t, etcdtest.Options{})
	from := newHost(t)
	from.fill()
	want, _ := from.records()
	backup := filepath.Join(t.TempDir(), "backup")
	from.must("SHA-256", "store", "backup", backup)
	for name, endpoint := range map[string]string{"embedded": "", "external": etcd.Endpoint} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			h.external = endpoint
			again := func() { // from the beginning
				if _, err := etcd.Client("").Delete(t.Context(), "", etcdtest.All); err != nil {
					t.Fatal(err)
				}
				h.c.DataDir = t.TempDir()
			}
			h.killedOften(etcd, kills/2, want, again, "store", "restore", backup)
			h.must("", "store", "restore", backup)
			h.done(want)
		})
	}
}

// A dead move's lease is waited for where another host has begun it.
func TestMoveWaitsForADeadOne(t *testing.T) {
	server, err := etcdserver.Start(t.Context(), etcdserver.Config{Dir: filepath.Join(t.TempDir(), "etcd"), Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	h := newHost(t)
	h.fill()
	h.external = server.Endpoint()
	dead, err := etcdstore.Open(t.Context(), etcdstore.Config{Endpoints: []string{h.external}, Cluster: "hpc", Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	if err := dead.Lead(t.Context(), etcdstore.Claim{Holder: "ctl2 pid 1, which runs kernel-broker store move", Place: "there", TTL: time.Second}); err != nil {
		t.Fatal(err)
	}
	move := h.program("store", "move")
	says, err := move.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := move.Start(); err != nil {
		t.Fatal(err)
	}
	waited := false
	for lines := bufio.NewScanner(says); lines.Scan(); {
		if strings.Contains(lines.Text(), "waiting 12s for the end of ctl2 pid 1, which runs kernel-broker store move") {
			waited = true
			if err := dead.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	if err := move.Wait(); err != nil || !waited {
		t.Errorf("waited %t, %v", waited, err)
	}
}
