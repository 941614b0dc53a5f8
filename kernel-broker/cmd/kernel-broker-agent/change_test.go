// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/local"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
)

// holdFetch makes fetches stop in the middle until the release.
func holdFetch(b *fakeBroker) (release func()) {
	gate := make(chan struct{})
	b.with(func() {
		b.chunk = func(_ string, sent int) error {
			if sent > 50_000 {
				<-gate
			}
			return nil
		}
	})
	open := sync.OnceFunc(func() { close(gate) })
	b.t.Cleanup(open)
	return open
}

func (b *fakeBroker) fetches(n int) {
	b.t.Helper()
	b.until("a fetch", func() bool { return b.fetched >= n })
}

// restedOnStock: the switch left nothing behind but a node that serves.
func restedOnStock(b *fakeBroker, n *fakeNode, starts int) {
	b.t.Helper()
	n.until("slurmd", func() bool { return n.starts() == starts && n.slurmdPID() > 0 })
	n.until("the unloading", func() bool { return strings.HasPrefix(n.read("sys/kernel/kexec_loaded"), "0") })
	b.slurmd(true, 1)
	if n.exists("executed") {
		b.t.Error("the node booted")
	}
}

func TestCancelDuringFetch(t *testing.T) {
	b, n := servingStock(t)
	release := holdFetch(b)
	b.setDesired(desiredSwitch(mitgcm(b), 7))
	b.fetches(1)
	w := b.setDesired(desiredStock(1))
	b.until("the report on slurmd", func() bool { return lastSlurmd(b) >= w.Generation })
	n.until("the fetch's end", func() bool { return strings.Contains(n.logs.String(), "action abandoned") })
	release()
	restedOnStock(b, n, 1)
	b.never(loaded)
}

// lastSlurmd needs the lock.
func lastSlurmd(b *fakeBroker) uint64 {
	for i := len(b.said) - 1; i >= 0; i-- {
		if s := b.said[i].GetSlurmd(); s != nil {
			return s.Generation
		}
	}
	return 0
}

func TestNewKernelDuringFetch(t *testing.T) {
	b, n := servingStock(t)
	holdFetch(b)
	b.setDesired(desiredSwitch(mitgcm(b), 7))
	b.fetches(1)
	b.with(func() { b.chunk = nil })
	other, content := otherKernel(b)
	w := b.setDesired(desiredSwitch(other, 8))
	b.report(w.Generation, executing)
	n.until("the kexec", func() bool { return n.exists("executed") })
	if n.read("loaded.image") != content || !strings.Contains(n.read("loaded.line"), token(8)) {
		t.Error("the older desired state was booted")
	}
}

// otherKernel is one beside mitgcm, with its image.
func otherKernel(b *fakeBroker) (*api.KernelSpec, string) {
	digest, content := kernelFile(b, "beefbeefbeefbeef", 100_000)
	return &api.KernelSpec{
		Profile: "other", Version: 1, ImageDigest: digest, ImageSize: uint64(len(content)),
		BuildId: "beefbeefbeefbeef", Release: "6.1.0-other", Architecture: "x86_64", Drivers: []string{"ext4"},
	}, string(content)
}

// A load that fails when its kernel is no longer wanted says nothing of the kernel that is.
func TestLoadFailsAfterNewKernel(t *testing.T) {
	b, n := servingStock(t)
	n.file("hold.load", "")
	n.file("fault.load", "Cannot determine the file type of image\n")
	b.setDesired(desiredSwitch(mitgcm(b), 7))
	n.until("the load", func() bool { return n.exists("kexec.log") && strings.Contains(n.read("kexec.log"), "-l ") })
	release := holdFetch(b)
	other, content := otherKernel(b)
	w := b.setDesired(desiredSwitch(other, 8))
	n.until("the newer desired state", func() bool { return strings.Contains(n.logs.String(), "generation=3") })
	n.remove("hold.load")
	n.until("the failure", func() bool { return strings.Contains(n.logs.String(), "action failed") })
	n.remove("fault.load")
	release()
	b.report(w.Generation, executing)
	n.until("the kexec", func() bool { return n.exists("executed") })
	if n.read("loaded.image") != content {
		t.Error("another image was loaded")
	}
	b.never(failed)
}

func TestCancelWhenLoaded(t *testing.T) {
	b, n := servingStock(t)
	release := blockingStop(n)
	w := b.setDesired(desiredSwitch(mitgcm(b), 7))
	b.report(w.Generation, loaded)
	n.until("the stopping", func() bool { return strings.Contains(n.logs.String(), "to=loaded") })
	b.setDesired(desiredStock(1))
	n.until("the newer desired state", func() bool { return strings.Contains(n.logs.String(), "generation=3") })
	release()
	restedOnStock(b, n, 2)
	b.never(executing)
}

// The broker has the node's last report and withdraws the switch before the node has the receipt.
func TestCancelBetweenLastReportAndBoot(t *testing.T) {
	b, n := servingStock(t)
	receipts := make(chan struct{})
	b.with(func() { b.receipts = receipts })
	w := b.setDesired(desiredSwitch(mitgcm(b), 7))
	b.report(w.Generation, executing)
	b.setDesired(desiredStock(1))
	n.until("the newer desired state", func() bool { return strings.Contains(n.logs.String(), "generation=3") })
	close(receipts)
	restedOnStock(b, n, 2)
}

// The same kernel for a newer generation is announced again under its number.
func TestNewGenerationBetweenLastReportAndBoot(t *testing.T) {
	b, n := servingStock(t)
	receipts := make(chan struct{})
	b.with(func() { b.receipts = receipts })
	kernel := mitgcm(b)
	w := b.setDesired(desiredSwitch(kernel, 7))
	b.report(w.Generation, executing)
	w = b.setDesired(desiredSwitch(kernel, 7))
	n.until("the newer desired state", func() bool { return strings.Contains(n.logs.String(), "generation=3") })
	close(receipts)
	b.report(w.Generation, executing)
	n.until("the kexec", func() bool { return n.exists("executed") })
}

func TestBrokerRestartsDuringFetch(t *testing.T) {
	b, n := servingStock(t)
	release := holdFetch(b)
	var goes atomic.Bool // and its fetch: the rest must not arrive quickly before
	b.with(func() {
		hold := b.chunk
		b.chunk = func(digest string, sent int) error {
			err := hold(digest, sent)
			if goes.Load() {
				return status.Error(codes.Unavailable, "the broker stops")
			}
			return err
		}
	})
	kernel := mitgcm(b)
	w := b.setDesired(desiredSwitch(kernel, 7))
	b.fetches(1)
	n.until("some bytes", func() bool { return partialSize(n) > 0 })
	goes.Store(true)
	release() // a server that is stopped waits for its handlers
	b.stop()
	time.Sleep(300 * time.Millisecond)
	if n.slurmdPID() == 0 {
		t.Error("slurmd was stopped while the broker is away")
	}
	b.with(func() { b.chunk = nil })
	b.start()
	b.hello(2)
	b.report(w.Generation, executing)
	n.until("the kexec", func() bool { return n.exists("executed") })
	if n.read("loaded.image") != string(b.files[kernel.ImageDigest]) {
		t.Error("another image was loaded")
	}
	b.never(failed)
}

// partialSize is how much of an artifact has arrived.
func partialSize(n *fakeNode) int64 {
	files, err := filepath.Glob(n.path("cache/sha256/*/.*"))
	if err != nil || len(files) == 0 {
		return 0
	}
	info, err := os.Stat(files[0])
	if err != nil {
		return 0
	}
	return info.Size()
}

// An interrupted fetch starts again.
func TestFetchStartsAgain(t *testing.T) {
	b, _ := servingStock(t)
	var once sync.Once
	b.with(func() {
		b.chunk = func(_ string, sent int) (err error) {
			if sent > 50_000 {
				once.Do(func() { err = status.Error(codes.Unavailable, "a cable was pulled") })
			}
			return err
		}
	})
	w := b.setDesired(desiredSwitch(mitgcm(b), 7))
	b.report(w.Generation, executing)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fetched != 2 {
		t.Errorf("%d fetches", b.fetched)
	}
}

// Without a receipt of its last report, and a broker that might want another state, the node stays where it is.
func TestBrokerLostBeforeReceipt(t *testing.T) {
	b, n := servingStock(t)
	b.with(func() { b.receipts = make(chan struct{}) })
	w := b.setDesired(desiredSwitch(mitgcm(b), 7))
	b.report(w.Generation, executing)
	b.stop()
	time.Sleep(500 * time.Millisecond)
	if n.exists("executed") {
		t.Fatal("the node booted without a broker")
	}
	b.with(func() { b.receipts, b.said = nil, nil })
	b.start()
	b.hello(2)
	b.report(w.Generation, executing)
	n.until("the kexec", func() bool { return n.exists("executed") })
}

func TestGrace(t *testing.T) {
	for _, c := range []struct {
		name, line string
		want       bool
	}{
		{"firmware booted it", "root=/dev/vda\n", true},
		{"a broker booted it", "root=/dev/vda kernelbroker.token=" + token(7) + "\n", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newFakeBroker(t)
			b.stop()
			n := newFakeNode(t, b.address)
			n.file("proc/cmdline", c.line)
			n.config.BrokerGrace = 300 * time.Millisecond
			n.up()
			if !c.want {
				n.until("the node's state", func() bool { return n.exists("run/node.state") })
				time.Sleep(time.Second)
				if s := n.state(); n.starts() > 0 || s.Profile != "" || s.Attested || s.BootID == "" {
					t.Errorf("slurmd started %d times, state %+v", n.starts(), s)
				}
				return
			}
			n.until("slurmd", func() bool { return n.slurmdPID() > 0 })
			if s := n.state(); s.Profile != "stock" || s.Version != 0 || s.Attested {
				t.Errorf("node state %+v", s)
			}
			// The broker's answer takes precedence.
			b.setDesired(&api.Desired{})
			b.start()
			n.until("slurmd's end", func() bool { return n.slurmdPID() == 0 })
			n.until("the file", func() bool { return n.state().Profile == "" })
		})
	}
}

func TestSocketAndSnapshot(t *testing.T) {
	b, n := servingStock(t)
	ask := func(r local.Request) (local.Answer, error) {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		return local.Ask(ctx, n.config.Socket, r)
	}
	kept := true
	b.with(func() { b.keep = &kept })
	if a, err := ask(local.Request{Op: local.JobEnding, Job: 12}); err != nil || !a.Kept || a.Error != "" {
		t.Errorf("kept: %+v, %v", a, err)
	}
	b.with(func() { b.keep = nil })
	begun := time.Now()
	a, err := ask(local.Request{Op: local.JobEnding, Job: 13})
	if took := time.Since(begun); err != nil || a.Kept || a.Error == "" || took < 2*time.Second {
		t.Errorf("silence: %+v, %v after %v", a, err, took)
	}
	if a, err := ask(local.Request{Op: local.Status}); err != nil || a.Status == nil || a.Status.Profile != "stock" || !a.Ready {
		t.Errorf("status: %+v, %v", a, err)
	}
	if a, err := ask(local.Request{Op: local.WaitReady, TimeoutMS: patience.Milliseconds()}); err != nil || !a.Ready {
		t.Errorf("ready: %+v, %v", a, err)
	}

	snapshot := "kernel-broker-snapshot 1\ngenerated 2026-11-20T10:00:00Z\nprofile stock 1 1 available\nend\n"
	b.with(func() {
		for _, text := range []string{snapshot, snapshot[:60]} {
			b.push <- &api.ConnectResponse{Message: &api.ConnectResponse_Snapshot{Snapshot: text}}
		}
	})
	n.until("the refusal of half a snapshot", func() bool { return strings.Contains(n.logs.String(), "not whole") })
	if got := n.read("catalog.snapshot"); got != snapshot {
		t.Errorf("snapshot %q", got)
	}
	b.setDesired(&api.Desired{Attested: true, RunningProfile: "stock", RunningVersion: 1})
	n.until("slurmd's end", func() bool { return n.slurmdPID() == 0 })
	if a, err := ask(local.Request{Op: local.WaitReady, TimeoutMS: 100}); err != nil || a.Ready || a.Error == "" {
		t.Errorf("not ready: %+v, %v", a, err)
	}
}
