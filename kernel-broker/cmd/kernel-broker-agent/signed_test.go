// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/ed25519"
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/signing"
)

// signer signs as an administrator that the node trusts.
type signer struct {
	t   *testing.T
	key ed25519.PrivateKey
}

// trusting gives the node a trust list with a new key.
func (n *fakeNode) trusting(more string) signer {
	n.t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		n.t.Fatal(err)
	}
	public, err := signing.FormatPublicKey(key.Public())
	if err != nil {
		n.t.Fatal(err)
	}
	n.file("trust.yaml", "cluster: alpha\nkeys:\n- name: release\n  public: |\n    "+
		strings.ReplaceAll(strings.TrimSpace(string(public)), "\n", "\n    ")+"\n"+more)
	n.config.Trust.List, n.config.Trust.State = n.path("trust.yaml"), n.path("trust.state")
	n.config.Trust.StockFiles = nil
	return signer{n.t, key}
}

func (s signer) sign(k *api.KernelSpec, change func(*signing.Terms)) []byte {
	s.t.Helper()
	terms := signing.Terms{Cluster: "alpha", Made: time.Now().Add(-time.Minute), Expires: time.Now().Add(time.Hour)}
	if change != nil {
		change(&terms)
	}
	envelope, err := signing.Sign(s.t.Context(), signing.ManifestOf(kb.Kernel{
		Profile: k.Profile, Version: k.Version, ImageDigest: k.ImageDigest, ImageSize: k.ImageSize,
		InitrdDigest: k.InitrdDigest, InitrdSize: k.InitrdSize, ModulesDigest: k.ModulesDigest, ModulesSize: k.ModulesSize, Arguments: k.Arguments, BuildID: k.BuildId,
		Release: k.Release, Architecture: k.Architecture, Drivers: k.Drivers, MinMemoryMiB: k.MinMemoryMib,
	}, terms), s.key)
	if err != nil {
		s.t.Fatal(err)
	}
	return envelope
}

func TestSignedKernelIsBooted(t *testing.T) {
	b, n, desired, kernel := trustedSwitch(t, func(t *signing.Terms) { t.Floor = 3 })
	w := b.setDesired(desired)
	b.report(w.Generation, executing)
	n.until("the kexec", func() bool { return n.exists("executed") })
	if n.read("loaded.image") != string(b.files[kernel.ImageDigest]) {
		t.Error("another kernel was loaded")
	}
	if !strings.Contains(n.read("trust.state"), `"mitgcm":`) {
		t.Errorf("remembered: %s", n.read("trust.state"))
	}
}

// An attacker who controls the broker, its store or the network can produce all of these. The node reports the reason,
// fetches nothing, and keeps its kernel.
func TestUntrustedKernelsAreRefused(t *testing.T) {
	for _, c := range []struct {
		name    string
		desired func(*fakeNode, signer, *api.KernelSpec) []byte
		list    string
		cause   string
	}{
		{"unsigned", func(*fakeNode, signer, *api.KernelSpec) []byte { return nil }, "", "not signed"},
		{"arguments added", func(_ *fakeNode, s signer, k *api.KernelSpec) []byte {
			envelope := s.sign(k, nil)
			k.Arguments = append(k.Arguments, "selinux=0")
			return envelope
		}, "", "arguments is"},
		{"another image under its name", func(_ *fakeNode, s signer, k *api.KernelSpec) []byte {
			envelope := s.sign(k, nil)
			k.ImageDigest = "sha256:" + strings.Repeat("ab", 32)
			return envelope
		}, "", "image digest is"},
		{"expired", func(_ *fakeNode, s signer, k *api.KernelSpec) []byte {
			return s.sign(k, func(t *signing.Terms) { t.Made, t.Expires = t.Made.Add(-time.Hour), t.Made })
		}, "", "expired"},
		{"of another cluster", func(_ *fakeNode, s signer, k *api.KernelSpec) []byte {
			return s.sign(k, func(t *signing.Terms) { t.Cluster = "beta" })
		}, "", "another cluster"},
		{"by another key", func(n *fakeNode, _ signer, k *api.KernelSpec) []byte {
			list := n.read("trust.yaml")
			envelope := n.trusting("").sign(k, nil)
			n.file("trust.yaml", list)
			return envelope
		}, "", "no key that is trusted"},
		{"below the list's floor", func(_ *fakeNode, s signer, k *api.KernelSpec) []byte { return s.sign(k, nil) },
			"floors: {mitgcm: 99}\n", "floor is 99"},
		{"older than what ran here", func(n *fakeNode, s signer, k *api.KernelSpec) []byte {
			n.file("trust.state", `{"format":1,"floors":{"mitgcm":99},"newest":"2026-01-01T00:00:00Z"}`)
			return s.sign(k, nil)
		}, "", "floor is 99"},
		{"stock by name only", func(_ *fakeNode, _ signer, k *api.KernelSpec) []byte {
			k.Profile = "stock"
			return nil
		}, "", "not signed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newFakeBroker(t)
			n := newFakeNode(t, b.address)
			kernel := mitgcm(b)
			envelope := c.desired(n, n.trusting(c.list), kernel)
			b.setDesired(desiredStock(1))
			n.up()
			b.slurmd(true, 1)
			desired := desiredSwitch(kernel, 7)
			desired.Envelope = envelope
			w := b.setDesired(desired)
			r := b.report(w.Generation, failed)
			if r.Failure != kernelFault || !strings.Contains(r.Detail, c.cause) || !strings.Contains(r.Detail, "trust list") {
				t.Errorf("failure %v: %s", r.Failure, r.Detail)
			}
			b.never(loaded)
			b.never(executing)
			files, err := filepath.Glob(n.path("cache/sha256/*/*"))
			if err != nil || len(files) != 0 || b.fetched != 0 {
				t.Errorf("fetched %v, %d times, %v", files, b.fetched, err)
			}
		})
	}
}

// An unreadable list is the node's fault: another node may work.
func TestUnreadableTrustListIsNodeFault(t *testing.T) {
	b := newFakeBroker(t)
	n := newFakeNode(t, b.address)
	kernel := mitgcm(b)
	s := n.trusting("")
	b.setDesired(desiredStock(1))
	n.up()
	b.slurmd(true, 1)
	if err := os.Chmod(n.path("trust.yaml"), 0o666); err != nil {
		t.Fatal(err)
	}
	desired := desiredSwitch(kernel, 7)
	desired.Envelope = s.sign(kernel, nil)
	w := b.setDesired(desired)
	if r := b.report(w.Generation, failed); r.Failure != nodeFault || !strings.Contains(r.Detail, "chmod go-w") {
		t.Errorf("failure %v: %s", r.Failure, r.Detail)
	}
}

// A kernel may stay loaded while slurmd stops or the broker is away. If the list revokes it meanwhile, it is unloaded
// and not booted.
func TestRevokedBetweenLoadAndBoot(t *testing.T) {
	for _, c := range []struct {
		name  string
		list  func(n *fakeNode, k *api.KernelSpec)
		fault api.FailureKind
		cause string
	}{
		{"digest", func(n *fakeNode, k *api.KernelSpec) {
			n.file("trust.yaml", n.read("trust.yaml")+"revoked: {digests: ["+k.ImageDigest+"]}\n")
		}, kernelFault, "revoked"},
		{"floor", func(n *fakeNode, k *api.KernelSpec) {
			n.file("trust.yaml", n.read("trust.yaml")+"floors: {mitgcm: 99}\n")
		}, kernelFault, "floor is 99"},
		{"key", func(n *fakeNode, _ *api.KernelSpec) { n.trusting("") }, kernelFault, "no key that is trusted"},
		{"list not readable", func(n *fakeNode, _ *api.KernelSpec) { n.file("trust.yaml", "kesy: []\n") }, nodeFault, "kesy"},
	} {
		t.Run(c.name+", while slurmd stops", func(t *testing.T) {
			b, n, desired, kernel := trustedSwitch(t, nil)
			release := blockingStop(n)
			w := b.setDesired(desired)
			b.report(w.Generation, loaded)
			c.list(n, kernel)
			release()
			refusedAtTheBoot(b, n, w.Generation, c.fault, c.cause)
		})
		t.Run(c.name+", after the last report", func(t *testing.T) {
			b, n, desired, kernel := trustedSwitch(t, nil)
			receipts := make(chan struct{})
			b.with(func() { b.receipts = receipts })
			w := b.setDesired(desired)
			b.report(w.Generation, executing)
			c.list(n, kernel)
			close(receipts)
			refusedAtTheBoot(b, n, w.Generation, c.fault, c.cause)
		})
	}
}

// trustedSwitch is a node on stock and the desired state with a kernel that it trusts.
func trustedSwitch(t *testing.T, change func(*signing.Terms)) (*fakeBroker, *fakeNode, *api.Desired, *api.KernelSpec) {
	t.Helper()
	b := newFakeBroker(t)
	n := newFakeNode(t, b.address)
	kernel := mitgcm(b)
	s := n.trusting("")
	b.setDesired(desiredStock(1))
	n.up()
	b.slurmd(true, 1)
	desired := desiredSwitch(kernel, 7)
	desired.Envelope = s.sign(kernel, change)
	return b, n, desired, kernel
}

func refusedAtTheBoot(b *fakeBroker, n *fakeNode, generation uint64, fault api.FailureKind, cause string) {
	n.t.Helper()
	if r := b.report(generation, failed); r.Failure != fault || !strings.Contains(r.Detail, cause) || !strings.Contains(r.Detail, "trust") {
		n.t.Errorf("failure %v: %s", r.Failure, r.Detail)
	}
	n.until("the unloading", func() bool { return strings.HasPrefix(n.read("sys/kernel/kexec_loaded"), "0") })
	if n.exists("executed") {
		n.t.Error("the node booted")
	}
	b.setDesired(desiredStock(1))
	n.until("slurmd, started again", func() bool { return n.starts() == 2 && n.slurmdPID() > 0 })
}
