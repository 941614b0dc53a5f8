// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/types/known/timestamppb"

	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
)

// TestMain runs the agent instead of the tests when another test wants it as a
// process of its own.
func TestMain(m *testing.M) {
	path := os.Getenv(agentProcess)
	if path == "" {
		goleak.VerifyTestMain(m)
		return
	}
	os.Args = []string{"kernel-broker-agent", "--config", path}
	main()
}

const (
	fetching  = api.SwitchState_SWITCH_STATE_FETCHING
	loaded    = api.SwitchState_SWITCH_STATE_LOADED
	executing = api.SwitchState_SWITCH_STATE_EXECUTING
	failed    = api.SwitchState_SWITCH_STATE_FAILED
)

// servingStock brings a node up to slurmd on stock.
func servingStock(t *testing.T) (*fakeBroker, *fakeNode) {
	t.Helper()
	b := newFakeBroker(t)
	n := newFakeNode(t, b.address)
	b.setDesired(desiredStock(1))
	n.up()
	b.slurmd(true, 1)
	return b, n
}

func TestSwitchAndReturn(t *testing.T) {
	b, n := servingStock(t)
	if s := n.state(); s.Profile != "stock" || s.Version != 1 || !s.Attested || s.BuildID != stockBuild {
		t.Fatalf("node state on stock: %+v", s)
	}
	kernel := mitgcm(b)
	w := b.setDesired(desiredSwitch(kernel, 7))
	b.report(w.Generation, fetching)
	b.report(w.Generation, loaded)
	b.report(w.Generation, executing)
	n.kexecs()
	if got, want := n.read("proc/cmdline"), "kernelbroker.begin root=/dev/vda ro console=ttyS0 nohz=off kernelbroker.token="+token(7)+"\n"; got != want {
		t.Errorf("command line %q, want %q", got, want)
	}

	b.setDesired(&api.Desired{SlurmdAllowed: true, SlurmdStart: 2})

	// Nothing happens until the broker has checked the proof.
	n.up()
	h := b.hello(2)
	if h.Token != token(7) || h.BuildId != mitgcmBuild || h.Release != "6.1.0-mitgcm" || h.SlurmdRunning {
		t.Errorf("hello: %v", h)
	}
	n.until("an unproven node state", func() bool { s := n.state(); return s.BootID == h.BootId && !s.Attested && s.Profile == "" })
	if n.starts() != 1 {
		t.Fatal("slurmd was started on an unproven kernel")
	}
	notBefore := time.Now().Add(700 * time.Millisecond)
	b.setDesired(&api.Desired{
		Attested: true, RunningProfile: "mitgcm", RunningVersion: 3, Jobs: []uint32{1234}, SlurmdAllowed: true, SlurmdStart: 2,
		SlurmdNotBefore: timestamppb.New(notBefore),
	})
	b.slurmd(true, 2)
	if time.Now().Before(notBefore) {
		t.Error("slurmd was started too early")
	}
	if s := n.state(); s.Profile != "mitgcm" || s.Version != 3 || !s.Attested || len(s.Jobs) != 1 || s.Jobs[0] != 1234 {
		t.Errorf("node state: %+v", s)
	}

	// And back, with a token too: that slurmd is stopped for it is the point.
	digest, content := kernelFile(b, stockBuild, 50_000)
	back := &api.KernelSpec{
		Profile: "stock", Version: 1, ImageDigest: digest, ImageSize: uint64(len(content)),
		BuildId: stockBuild, Release: "6.1.0-stock", Architecture: "x86_64", Drivers: []string{"ext4"},
	}
	w = b.setDesired(&api.Desired{Kernel: back, Token: token(8), Attested: true, RunningProfile: "mitgcm", RunningVersion: 3, SlurmdStart: 2})
	b.report(w.Generation, executing)
	n.kexecs()
	if line := n.read("proc/cmdline"); strings.Contains(line, "nohz") || strings.Contains(line, token(7)) {
		t.Errorf("the profile's arguments were kept: %q", line)
	}
	b.never(failed)
}

func TestAnnouncedBeforeTheBoot(t *testing.T) {
	b, n := servingStock(t)
	w := b.setDesired(desiredSwitch(mitgcm(b), 7))
	n.until("the kexec", func() bool { return n.exists("executed") })
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.reported(w.Generation, executing) == nil {
		t.Error("the node booted before the broker had its last report")
	}
}
