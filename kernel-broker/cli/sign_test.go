// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/signing"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/signing/keys"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/server"
)

// lyingBroker is a compromised broker: it lies about a profile and records what it receives for it.
type lyingBroker struct {
	server.Catalog
	lie func(*kb.Profile)
	got *[][]byte
}

func (l lyingBroker) Get(ctx context.Context, name string) (kb.Profile, error) {
	p, err := l.Catalog.Get(ctx, name)
	if err == nil {
		l.lie(&p)
	}
	return p, err
}

func (l lyingBroker) Sign(ctx context.Context, _ string, ref kb.Ref, envelope []byte) (kb.Profile, bool, error) {
	*l.got = append(*l.got, envelope)
	p, err := l.Catalog.Get(ctx, ref.Profile)
	return p, true, err
}

// lying is a fixture whose broker lies, with mitgcm@1 and stock@1.
func lying(t *testing.T, lie func(*kb.Profile)) (f *fixture, got *[][]byte, kernels string) {
	t.Helper()
	got = new([][]byte)
	f = newFixture(t, func(o *server.Options) { o.Catalog = lyingBroker{o.Catalog, lie, got} })
	dir, kernels := invented(t)
	f.must(0, "", "profile", "apply", dir, "--kernels", kernels)
	return f, got, kernels
}

// envelope is signed with a key file, for the cluster alpha unless change modifies it.
func envelope(t *testing.T, key string, k kb.Kernel, change func(*signing.Terms)) []byte {
	t.Helper()
	by, err := keys.Open(t.Context(), key, nil)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	terms := signing.Terms{Cluster: "alpha", Made: now, Expires: now.Add(time.Hour)}
	if change != nil {
		change(&terms)
	}
	raw, err := signing.Sign(t.Context(), signing.ManifestOf(k, terms), by)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// public writes the public half of a key file as kernelctl shows it, and as other
// programs write it.
func (f *fixture) public(t *testing.T, key string) (entry, pem string) {
	t.Helper()
	entry, pem = filepath.Join(t.TempDir(), "entry"), filepath.Join(t.TempDir(), "pem")
	by, err := keys.Open(t.Context(), key, nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := signing.FormatPublicKey(by.Public())
	if err != nil {
		t.Fatal(err)
	}
	for path, content := range map[string]string{entry: f.must(0, "", "key", "show", key), pem: string(text)} {
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return entry, pem
}

func sign(key string, more ...string) []string {
	return append([]string{"kernel", "sign", "mitgcm@1", "--sign-key", key, "--cluster", "alpha"}, more...)
}

var mitgcm1 = kb.Ref{Profile: "mitgcm", Version: 1}

// Another kernel under the requested name is not signed, with any evidence.
func TestSignRejectsOtherKernel(t *testing.T) {
	f, got, kernels := lying(t, func(p *kb.Profile) { p.Versions[0].Kernel.Profile = "stock" })
	key, _ := f.key(t)
	image := filepath.Join(kernels, "mitgcm", "bzImage")
	for _, more := range [][]string{nil, {"--as-described"}, {"--kernel", image}} {
		f.must(3, `the broker answers with kernel "stock@1"`, sign(key, more...)...)
	}
	if len(*got) != 0 {
		t.Errorf("signed: %s", *got)
	}
}

// The broker's description alone does not suffice for a signature.
func TestSignNeedsEvidence(t *testing.T) {
	f := newFixture(t)
	dir, kernels := invented(t)
	f.must(0, "", "profile", "apply", dir, "--kernels", kernels)
	key, trust := f.key(t)
	for _, remedy := range []string{"not signed", "--kernel", "--verify-key", "--as-described"} {
		f.must(3, remedy, sign(key)...)
	}
	if v := f.version(t, mitgcm1); len(v.Envelope) > 0 {
		t.Errorf("signed: %s", v.Envelope)
	}
	f.must(0, "no evidence other than the broker's", sign(key, "--as-described")...)
	f.verify(t, trust, mitgcm1)
	// From then on the signature itself does, also when it has expired.
	f.must(0, "according to its current signature", sign(key)...)
	kernel := f.version(t, mitgcm1).Kernel
	old := envelope(t, key, kernel, func(terms *signing.Terms) {
		terms.Made, terms.Expires = time.Now().Add(-48*time.Hour), time.Now().Add(-24*time.Hour)
	})
	f.put(t, "expired", old)
	f.must(0, "according to its current signature", sign(key)...)
	if m := f.verify(t, trust, mitgcm1); !m.Expires.After(time.Now()) {
		t.Errorf("signed: %+v", m)
	}
	// A signature for another cluster is no evidence for this one.
	f.put(t, "elsewhere", envelope(t, key, kernel, func(terms *signing.Terms) { terms.Cluster = "beta" }))
	f.must(3, "signed for another cluster", sign(key)...)
	// A new key after an old one.
	f.put(t, "old", old)
	next, newTrust := f.key(t)
	f.must(3, "signed by no key that is trusted", sign(next)...)
	entry, pem := f.public(t, key)
	f.must(0, "according to its current signature", sign(next, "--verify-key", entry)...)
	f.verify(t, newTrust, mitgcm1)
	f.put(t, "old-again", envelope(t, key, kernel, nil))
	f.must(0, "according to its current signature", sign(next, "--verify-key", pem, "--verify-key", entry)...)
	f.must(0, "", sign(next, "--sign-key", key)...)
	f.must(3, "not one PEM block", sign(next, "--verify-key", filepath.Join(kernels, "mitgcm", "kernel.json"))...)
}

// put has the broker hold an envelope.
func (f *fixture) put(t *testing.T, id string, raw []byte) {
	t.Helper()
	if _, _, err := f.catalog.Sign(t.Context(), id, mitgcm1, raw); err != nil {
		t.Fatal(err)
	}
}

// A broker that describes a signed kernel otherwise gets no new signature for it.
func TestSignRejectsOtherContent(t *testing.T) {
	var raw []byte
	lies := map[string]func(*kb.Kernel){
		"initrd digest": func(k *kb.Kernel) {
			k.InitrdDigest, k.InitrdSize = "sha256:"+strings.Repeat("ee", 32), 666
		},
		"image digest": func(k *kb.Kernel) { k.ImageDigest = "sha256:" + strings.Repeat("ee", 32) },
		"arguments":    func(k *kb.Kernel) { k.Arguments = []string{"mitigations=off"} },
		"drivers":      func(k *kb.Kernel) { k.Drivers = []string{"evil"} },
		"least memory": func(k *kb.Kernel) { k.MinMemoryMiB = 1 << 40 },
	}
	for field, lie := range lies {
		f, got, kernels := lying(t, func(p *kb.Profile) {
			p.Versions[0].Envelope = raw
			if raw != nil {
				lie(&p.Versions[0].Kernel)
			}
		})
		key, _ := f.key(t)
		raw = envelope(t, key, f.version(t, mitgcm1).Kernel, nil)
		for _, more := range [][]string{nil, {"--as-described"}} {
			f.must(3, field+" is ", sign(key, more...)...)
		}
		at := filepath.Join(kernels, "mitgcm")
		if field != "least memory" { // which is in no file
			f.must(3, field, sign(key, "--kernel", filepath.Join(at, "bzImage"), "--manifest", filepath.Join(at, "kernel.json"))...)
		}
		if len(*got) != 0 {
			t.Errorf("%s: signed: %s", field, *got)
		}
		raw = nil
	}
}

// The builder's files are evidence for the kernel.
func TestSignWithFiles(t *testing.T) {
	f := newFixture(t)
	key, trust := f.key(t)
	dir := bootable(t, t.TempDir(), "mitgcm")
	image, manifest, initrd := filepath.Join(dir, "bzImage"), filepath.Join(dir, "kernel.json"), filepath.Join(dir, "initrd")
	if err := os.WriteFile(initrd, []byte("an initrd"), 0o644); err != nil {
		t.Fatal(err)
	}
	f.must(0, "", "kernel", "register", "--no-boot-test", "--profile", "mitgcm", "--kernel", image, "--initrd", initrd, "--manifest", manifest,
		"--argument", "quiet", "--argument", "nosmt")
	other := filepath.Join(t.TempDir(), "other")
	if err := os.WriteFile(other, []byte("other bytes"), 0o644); err != nil {
		t.Fatal(err)
	}
	whole := []string{"--kernel", image, "--initrd", initrd, "--argument", "quiet", "--argument", "nosmt"}
	for words, more := range map[string][]string{
		"image digest is ":             {"--kernel", other, "--initrd", initrd, "--argument", "quiet", "--argument", "nosmt"},
		`initrd digest is "sha256:`:    {"--kernel", image, "--argument", "quiet", "--argument", "nosmt"},
		"initrd digest is ":            {"--kernel", image, "--initrd", other, "--argument", "quiet", "--argument", "nosmt"},
		`arguments is "quiet nosmt"`:   {"--kernel", image, "--initrd", initrd, "--argument", "quiet"},
		"is not the image of the mani": {"--kernel", other, "--initrd", initrd, "--argument", "quiet", "--argument", "nosmt", "--manifest", manifest},
	} {
		f.must(3, words, sign(key, more...)...)
	}
	for words, more := range map[string][]string{
		"--as-described and --kernel exclude": append(whole, "--as-described"),
		"--kernel":                            {"--argument", "quiet"},
	} {
		f.must(2, words, sign(key, more...)...)
	}
	if v := f.version(t, mitgcm1); len(v.Envelope) > 0 {
		t.Errorf("signed: %s", v.Envelope)
	}
	f.must(0, "according to the files", sign(key, whole...)...)
	f.verify(t, trust, mitgcm1)
	f.must(0, "according to the files", sign(key, append(whole, "--manifest", manifest)...)...)
	text, err := os.ReadFile(manifest)
	if err != nil {
		t.Fatal(err)
	}
	for field, replaced := range map[string][2]string{
		"drivers": {"virtio_blk", "virtio_scsi"}, "release": {"6.1.0-mitgcm", "6.1.0-other"}, "build id": {strings.Repeat("ab", 20), strings.Repeat("cd", 20)},
	} {
		changed := strings.ReplaceAll(string(text), replaced[0], replaced[1])
		if err := os.WriteFile(other, []byte(changed), 0o644); err != nil {
			t.Fatal(err)
		}
		f.must(3, field+" is ", sign(key, append(whole, "--manifest", other)...)...)
	}
}

// Signing shows the complete signed content.
func TestSignShowsSignedContent(t *testing.T) {
	f := newFixture(t)
	dir, kernels := invented(t)
	f.must(0, "", "profile", "apply", dir, "--kernels", kernels)
	key, trust := f.key(t)
	k := f.version(t, mitgcm1).Kernel
	_, _, shown := f.run(sign(key, "--as-described", "--floor", "1")...)
	m := f.verify(t, trust, mitgcm1)
	for _, words := range []string{
		"mitgcm@1", k.ImageDigest, fmt.Sprint(k.ImageSize), "none, the node's own", fmt.Sprintf("%q", k.Arguments), k.Release, k.BuildID, "x86_64",
		fmt.Sprintf("%d: ", len(k.Drivers)), fmt.Sprintf("%d MiB", k.MinMemoryMiB), "alpha", clock(m.Expires), "nodes that have it boot no version below 1", trust.Keys[0].ID,
	} {
		if !strings.Contains(shown, words) {
			t.Errorf("%q is not shown:\n%s", words, shown)
		}
	}
}

// The floor never sinks below that of a known signature, and only known keys can raise it.
func TestFloorOfKnownKeys(t *testing.T) {
	var planted []byte
	f := newFixture(t, func(o *server.Options) {
		o.Catalog = lyingBroker{o.Catalog, func(p *kb.Profile) {
			for i := range p.Versions {
				if planted != nil {
					p.Versions[i].Envelope = planted
				}
			}
		}, new([][]byte)}
	})
	dir, kernels := invented(t)
	f.must(0, "", "profile", "apply", dir, "--kernels", kernels)
	mine, trust := f.key(t)
	others, _ := f.key(t)
	entry, _ := f.public(t, others)
	image := filepath.Join(bootable(t, t.TempDir(), "mitgcm"), "bzImage")
	next := uint32(1)
	register := func(want uint32, words string, more ...string) {
		t.Helper()
		next++
		arguments := append([]string{"kernel", "register", "--no-boot-test", "--profile", "mitgcm", "--kernel", image, "--driver", "virtio_net",
			"--argument", fmt.Sprintf("n=%d", next), "--sign-key", mine, "--cluster", "alpha"}, more...)
		f.must(0, words, arguments...)
		if m := f.verify(t, trust, kb.Ref{Profile: "mitgcm", Version: next}); m.Floor != want {
			t.Errorf("version %d has floor %d, want %d", next, m.Floor, want)
		}
	}
	k := f.version(t, mitgcm1).Kernel
	k.Version = 2
	floor := func(terms *signing.Terms) { terms.Floor = 2 }
	planted = envelope(t, others, k, floor)
	register(0, "")
	register(2, "no version below 2", "--verify-key", entry)
	planted = envelope(t, mine, k, func(terms *signing.Terms) { terms.Cluster, terms.Floor = "beta", 2 })
	register(0, "")
	elsewhere := k
	elsewhere.Profile = "gromacs"
	planted = envelope(t, mine, elsewhere, floor)
	register(0, "")
	planted = envelope(t, mine, k, floor)
	register(2, "no version below 2")
	register(3, "no version below 3", "--floor", "3")
	planted = nil
	register(3, "no version below 3")
}
