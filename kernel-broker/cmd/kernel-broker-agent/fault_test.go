// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
)

const (
	nodeFault   = api.FailureKind_FAILURE_KIND_NODE
	kernelFault = api.FailureKind_FAILURE_KIND_KERNEL
)

// TestFaults: for any fault the node reports whose fault it is, never reports "loaded", keeps its kernel and slurmd.
func TestFaults(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(*testing.T, *fakeBroker, *fakeNode, *api.KernelSpec)
		fault api.FailureKind
		cause string
	}{
		{"artifact truncated at the broker", func(_ *testing.T, b *fakeBroker, _ *fakeNode, k *api.KernelSpec) {
			b.files[k.ImageDigest] = b.files[k.ImageDigest][:50_000]
		}, kernelFault, "truncated"},
		{"artifact longer than it should be", func(_ *testing.T, b *fakeBroker, _ *fakeNode, k *api.KernelSpec) {
			b.files[k.ImageDigest] = append(b.files[k.ImageDigest], 'x')
		}, kernelFault, "too large"},
		{"one byte flipped at the broker", func(_ *testing.T, b *fakeBroker, _ *fakeNode, k *api.KernelSpec) {
			b.files[k.ImageDigest][70_000] ^= 1
		}, kernelFault, "does not match its digest"},
		{"artifact missing at the broker", func(_ *testing.T, b *fakeBroker, _ *fakeNode, k *api.KernelSpec) {
			delete(b.files, k.ImageDigest)
		}, kernelFault, "not found"},
		{"initrd missing at the broker", func(_ *testing.T, _ *fakeBroker, _ *fakeNode, k *api.KernelSpec) {
			k.InitrdDigest, k.InitrdSize = "sha256:"+strings.Repeat("ab", 32), 5
		}, kernelFault, "not found"},
		{"kernel larger than the cache", func(_ *testing.T, _ *fakeBroker, _ *fakeNode, k *api.KernelSpec) {
			k.ImageSize = 1 << 40
		}, nodeFault, "cache"},
		{"kexec -l fails", func(_ *testing.T, _ *fakeBroker, n *fakeNode, _ *api.KernelSpec) {
			n.file("fault.load", "kexec_load failed: Cannot assign requested address\n")
		}, nodeFault, "Cannot assign"},
		{"kexec -l does not know the image", func(_ *testing.T, _ *fakeBroker, n *fakeNode, _ *api.KernelSpec) {
			n.file("fault.load", "Cannot determine the file type of image\n")
		}, kernelFault, "file type"},
		{"kexec -l succeeds without effect", func(_ *testing.T, _ *fakeBroker, n *fakeNode, _ *api.KernelSpec) {
			n.file("fault.silent", "")
		}, nodeFault, "holds no image"},
		{"another architecture", func(_ *testing.T, _ *fakeBroker, _ *fakeNode, k *api.KernelSpec) {
			k.Architecture = "riscv64"
		}, kernelFault, "riscv64"},
		{"more memory than there is", func(_ *testing.T, _ *fakeBroker, _ *fakeNode, k *api.KernelSpec) {
			k.MinMemoryMib = 4096
		}, kernelFault, "4096 MiB"},
		{"more system cores than there are", func(_ *testing.T, _ *fakeBroker, _ *fakeNode, k *api.KernelSpec) {
			k.SystemCores = 4
		}, kernelFault, "of 4 cores none is left for the application with 4 kept for the system"},
		{"an argument that belongs to the node", func(_ *testing.T, _ *fakeBroker, _ *fakeNode, k *api.KernelSpec) {
			k.Arguments = []string{"net.ifnames=0"}
		}, kernelFault, "belongs to the node"},
		{"the disk is full", fullDisk, nodeFault, "no space"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newFakeBroker(t)
			n := newFakeNode(t, b.address)
			kernel := mitgcm(b)
			b.with(func() { c.spoil(t, b, n, kernel) })
			b.setDesired(desiredStock(1))
			n.up()
			b.slurmd(true, 1)
			w := b.setDesired(desiredSwitch(kernel, 7))
			r := b.report(w.Generation, failed)
			if r.Failure != c.fault || !strings.Contains(r.Detail, c.cause) {
				t.Errorf("failure %v: %s", r.Failure, r.Detail)
			}
			b.never(loaded)
			b.never(executing)
			if n.exists("executed") {
				t.Error("the node changed")
			}
			// The node is usable again as soon as the broker permits.
			b.setDesired(desiredStock(2))
			b.slurmd(true, 2)
			if got := strings.TrimSpace(n.read("sys/kernel/kexec_loaded")); got != "0" {
				t.Errorf("kexec_loaded is %s", got)
			}
		})
	}
}

// fullDisk puts the cache on a file system of 64 KiB.
func fullDisk(t *testing.T, _ *fakeBroker, n *fakeNode, _ *api.KernelSpec) {
	if err := os.MkdirAll(n.config.Cache.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", n.config.Cache.Dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Skip("needs root and leave to mount a small file system: ", err)
	}
	t.Cleanup(func() {
		n.stop()
		if err := syscall.Unmount(n.config.Cache.Dir, 0); err != nil {
			t.Error(err)
		}
	})
}

func TestCorruptCacheIsRefetched(t *testing.T) {
	b, n := servingStock(t)
	kernel := mitgcm(b)
	release := blockingStop(n)
	w := b.setDesired(desiredSwitch(kernel, 7))
	b.report(w.Generation, loaded)
	b.setDesired(desiredStock(1))
	release()
	n.until("the unloading", func() bool { return strings.HasPrefix(n.read("sys/kernel/kexec_loaded"), "0") })

	files, err := filepath.Glob(n.path("cache/sha256/*/*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("cache: %v, %v", files, err)
	}
	raw, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	raw[90_000] ^= 1
	if err := os.Remove(files[0]); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(files[0], raw, 0o444); err != nil {
		t.Fatal(err)
	}
	w = b.setDesired(desiredSwitch(kernel, 8))
	b.report(w.Generation, executing)
	n.until("the kexec", func() bool { return n.exists("executed") })
	if n.read("loaded.image") != string(b.files[kernel.ImageDigest]) {
		t.Error("a damaged image was loaded")
	}
	if b.fetched != 2 {
		t.Errorf("%d fetches", b.fetched)
	}
	b.never(failed)
}

// blockingStop makes slurmd's stop last until release is called.
func blockingStop(n *fakeNode) (release func()) {
	n.file("hold.stop", "")
	return func() { n.remove("hold.stop") }
}

// slurmd that takes longer to end than its stop may take is no fault of the node.
func TestSlowStopOfSlurmd(t *testing.T) {
	b := newFakeBroker(t)
	n := newFakeNode(t, b.address)
	n.config.Slurmd.StopTimeout = 300 * time.Millisecond
	b.setDesired(desiredStock(1))
	n.up()
	b.slurmd(true, 1)
	release := blockingStop(n)
	w := b.setDesired(desiredSwitch(mitgcm(b), 7))
	n.until("the stop that is not done", func() bool { return strings.Contains(n.logs.String(), "not done within 300ms") })
	release()
	b.report(w.Generation, executing)
	n.until("the kexec", func() bool { return n.exists("executed") })
	b.never(failed)
}

func TestKexecThatReturns(t *testing.T) {
	b, n := servingStock(t)
	n.file("fault.execute", "")
	w := b.setDesired(desiredSwitch(mitgcm(b), 7))
	if r := b.report(w.Generation, failed); r.Failure != nodeFault || !strings.Contains(r.Detail, "did not boot") {
		t.Errorf("failure %v: %s", r.Failure, r.Detail)
	}
	n.until("the unloading", func() bool { return strings.HasPrefix(n.read("sys/kernel/kexec_loaded"), "0") })
	b.setDesired(desiredStock(1))
	n.until("slurmd, started again", func() bool { return n.starts() == 2 && n.slurmdPID() > 0 })
}

func TestUnexpectedKernelBooted(t *testing.T) {
	b, n := servingStock(t)
	kernel := mitgcm(b)
	w := b.setDesired(desiredSwitch(kernel, 7))
	b.report(w.Generation, executing)
	n.until("the kexec", func() bool { return n.exists("executed") })
	image := n.read("loaded.image")
	n.file("loaded.image", "beefbeefbeefbeef\n"+image)
	n.kexecs()
	w = b.setDesired(&api.Desired{Kernel: kernel, Token: token(7), SlurmdAllowed: true, SlurmdStart: 2})
	n.up()
	r := b.report(w.Generation, failed)
	if r.Failure != kernelFault || !strings.Contains(r.Detail, "beefbeef") {
		t.Errorf("failure %v: %s", r.Failure, r.Detail)
	}
	if n.starts() != 1 {
		t.Error("slurmd was started on an unproven kernel")
	}
}

func TestSlurmdFailsToStart(t *testing.T) {
	b := newFakeBroker(t)
	n := newFakeNode(t, b.address)
	n.file("fault.slurmd", "")
	w := b.setDesired(desiredStock(1))
	n.up()
	b.until("the cause", func() bool {
		for _, m := range b.said {
			if s := m.GetSlurmd(); s != nil && !s.Running && strings.Contains(s.Detail, "no munge") && s.Generation == w.Generation {
				return true
			}
		}
		return false
	})
	if err := os.Remove(n.path("fault.slurmd")); err != nil {
		t.Fatal(err)
	}
	b.slurmd(true, 1)
}

func TestPowerLossDuringSwitch(t *testing.T) {
	b, n := servingStock(t)
	kernel := mitgcm(b)
	b.with(func() { b.receipts = make(chan struct{}) })
	w := b.setDesired(desiredSwitch(kernel, 7))
	b.report(w.Generation, executing)
	n.stop()
	n.power()
	b.with(func() { close(b.receipts); b.receipts = nil })
	b.setDesired(desiredStock(2))
	n.up()
	if h := b.hello(2); h.Token != "" || h.BuildId != stockBuild || h.SlurmdRunning {
		t.Errorf("hello: %v", h)
	}
	b.slurmd(true, 2)
	if n.exists("executed") {
		t.Error("the node booted without a receipt")
	}
	if got := fmt.Sprintf("%v %v", n.state().Attested, n.state().Profile); got != "true stock" {
		t.Errorf("node state: %s", got)
	}
}
