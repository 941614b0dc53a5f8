// SPDX-License-Identifier: Apache-2.0

package kexec

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/signing"
)

var moment = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// site is a key with the verifier of a node that trusts it.
type site struct {
	t        *testing.T
	dir      string
	key      ed25519.PrivateKey
	verifier *Verifier
	log      *bytes.Buffer
}

func newSite(t *testing.T) *site {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	s := &site{t: t, dir: t.TempDir(), key: key, log: &bytes.Buffer{}}
	s.verifier = &Verifier{
		List: s.path("trust.yaml"), State: s.path("trust.state"), Required: true, Stock: []string{s.path("vmlinuz-*"), s.path("initrd-*")},
		Now: func() time.Time { return moment }, Log: slog.New(slog.NewTextHandler(s.log, nil)),
	}
	s.list("")
	return s
}

func (s *site) path(name string) string { return filepath.Join(s.dir, name) }

func (s *site) write(name, content string) {
	s.t.Helper()
	if err := os.WriteFile(s.path(name), []byte(content), 0o644); err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) list(more string) {
	s.t.Helper()
	public, err := signing.FormatPublicKey(s.key.Public())
	if err != nil {
		s.t.Fatal(err)
	}
	s.write("trust.yaml", "cluster: alpha\nkeys:\n- name: release\n  public: |\n    "+
		strings.ReplaceAll(strings.TrimSpace(string(public)), "\n", "\n    ")+"\n"+more)
}

func kernel(profile string, version uint32) kb.Kernel {
	return kb.Kernel{Profile: profile, Version: version, ImageDigest: digestText("image"), ImageSize: 5,
		BuildID: strings.Repeat("ab", 20), Release: "6.1.0", Architecture: "x86_64"}
}

func digestText(content string) string {
	sum := sha256.Sum256([]byte(content))
	return "sha256:" + hex.EncodeToString(sum[:])
}

func (s *site) sign(k kb.Kernel, floor uint32) []byte {
	s.t.Helper()
	envelope, err := signing.Sign(s.t.Context(), signing.ManifestOf(k, signing.Terms{
		Cluster: "alpha", Made: moment.Add(-time.Hour), Expires: moment.Add(time.Hour), Floor: floor}), s.key)
	if err != nil {
		s.t.Fatal(err)
	}
	return envelope
}

func TestFloorIsRememberedWhenAKernelIsLoaded(t *testing.T) {
	s := newSite(t)
	old, next := kernel("mitgcm", 2), kernel("mitgcm", 3)
	oldEnvelope, nextEnvelope := s.sign(old, 0), s.sign(next, 3)
	ctx := t.Context()
	// Allow for the new one changes nothing.
	if err := errors.Join(s.verifier.Allow(ctx, next, nextEnvelope), s.verifier.Admit(ctx, old, oldEnvelope)); err != nil {
		t.Fatal(err)
	}
	if err := s.verifier.Admit(ctx, next, nextEnvelope); err != nil {
		t.Fatal(err)
	}
	again := *s.verifier // another agent, after a boot
	for name, ask := range map[string]func(context.Context, kb.Kernel, []byte) error{"allow": again.Allow, "admit": again.Admit} {
		if err := ask(ctx, old, oldEnvelope); !errors.Is(err, signing.ErrFloor) || !errors.Is(err, ErrKernel) {
			t.Errorf("%s of an older kernel: %v", name, err)
		}
		if err := ask(ctx, kernel("gromacs", 1), s.sign(kernel("gromacs", 1), 0)); err != nil {
			t.Errorf("%s of another profile: %v", name, err)
		}
	}
}

// A manifest dated in the future does not advance the remembered time beyond the clock.
func TestTimeIsRememberedUpToTheClock(t *testing.T) {
	s := newSite(t)
	k := kernel("mitgcm", 3)
	for _, step := range []struct{ clock, made, newest time.Duration }{
		{0, 20 * time.Hour, 0}, {time.Hour, 21 * time.Hour, time.Hour}, {3 * time.Hour, 2 * time.Hour, 2 * time.Hour},
	} {
		s.verifier.Now = func() time.Time { return moment.Add(step.clock) }
		envelope, err := signing.Sign(t.Context(), signing.ManifestOf(k, signing.Terms{
			Cluster: "alpha", Made: moment.Add(step.made), Expires: moment.Add(48 * time.Hour)}), s.key)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.verifier.Admit(t.Context(), k, envelope); err != nil {
			t.Fatal(err)
		}
		memory, err := readMemory(s.verifier.State)
		if err != nil || !memory.Newest.Equal(moment.Add(step.newest)) {
			t.Errorf("%+v: newest %v, %v", step, memory.Newest, err)
		}
	}
}

func TestUnreadableMemoryRefusesAll(t *testing.T) {
	s := newSite(t)
	k := kernel("mitgcm", 3)
	for name, content := range map[string]string{
		"empty": "", "rubbish": "x", "other format": `{"format":2}`, "more": `{"format":1,"floors":{},"extra":1}`, "cut": `{"format":1,"flo`,
	} {
		s.write("trust.state", content)
		if err := s.verifier.Admit(t.Context(), k, s.sign(k, 0)); err == nil || errors.Is(err, ErrKernel) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := os.Chmod(s.path("trust.state"), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := s.verifier.Allow(t.Context(), k, s.sign(k, 0)); err == nil || !strings.Contains(err.Error(), "written by others") {
		t.Errorf("for all to write: %v", err)
	}
}

func TestListIsReread(t *testing.T) {
	s := newSite(t)
	k := kernel("mitgcm", 3)
	envelope := s.sign(k, 0)
	ctx := t.Context()
	if err := s.verifier.Allow(ctx, k, envelope); err != nil {
		t.Fatal(err)
	}
	s.list("revoked:\n  digests: [" + k.ImageDigest + "]\n")
	if err := s.verifier.Admit(ctx, k, envelope); !errors.Is(err, signing.ErrRevoked) {
		t.Errorf("revoked between the two checks: %v", err)
	}
	s.write("trust.yaml", "cluster: alpha\nkesy: []\n")
	if err := s.verifier.Allow(ctx, k, envelope); err == nil || errors.Is(err, ErrKernel) || !strings.Contains(err.Error(), "kesy") {
		t.Errorf("a list with a mistake: %v", err)
	}
	if err := os.Remove(s.path("trust.yaml")); err != nil {
		t.Fatal(err)
	}
	if err := s.verifier.Allow(ctx, k, envelope); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no list: %v", err)
	}
	s.list("")
	if err := os.Chmod(s.path("trust.yaml"), 0o664); err != nil {
		t.Fatal(err)
	}
	if err := s.verifier.Allow(ctx, k, envelope); err == nil || !strings.Contains(err.Error(), "chmod go-w") {
		t.Errorf("a list that a group may write: %v", err)
	}
}

// Only the distribution's own files on this node count as its kernel.
func TestUnsignedStock(t *testing.T) {
	s := newSite(t)
	s.write("vmlinuz-6.1", "image")
	s.write("initrd-6.1", "initrd")
	stock := kernel("stock", 1)
	with := func(change func(*kb.Kernel)) kb.Kernel {
		k := stock
		change(&k)
		return k
	}
	for name, c := range map[string]struct {
		kernel kb.Kernel
		good   bool
	}{
		"its own":           {stock, true},
		"with its initrd":   {with(func(k *kb.Kernel) { k.InitrdDigest = digestText("initrd") }), true},
		"another image":     {with(func(k *kb.Kernel) { k.ImageDigest = digestText("evil") }), false},
		"another initrd":    {with(func(k *kb.Kernel) { k.InitrdDigest = digestText("evil") }), false},
		"arguments":         {with(func(k *kb.Kernel) { k.Arguments = []string{"selinux=0"} }), false},
		"by another name":   {with(func(k *kb.Kernel) { k.Profile = "mitgcm" }), false},
		"a name like stock": {with(func(k *kb.Kernel) { k.Profile = "stock2" }), false},
	} {
		if err := s.verifier.Admit(t.Context(), c.kernel, nil); (err == nil) != c.good || err != nil && !errors.Is(err, signing.ErrUnsigned) {
			t.Errorf("%s: %v", name, err)
		}
	}
	s.list("revoked:\n  digests: [" + stock.ImageDigest + "]\n")
	if err := s.verifier.Allow(t.Context(), stock, nil); !errors.Is(err, ErrKernel) {
		t.Errorf("revoked: %v", err)
	}
	s.list("")
	if err := os.Chmod(s.path("vmlinuz-6.1"), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := s.verifier.Allow(t.Context(), stock, nil); err == nil {
		t.Error("a world-writable file counts as the distribution's")
	}
}

// The node's own files are judged by being there alone: where stock is signed,
// the list of them is to be empty.
func TestOwnStockHasNoFloor(t *testing.T) {
	s := newSite(t)
	s.write("vmlinuz-6.1", "image")
	s.list("floors: {stock: 9}\n")
	if err := s.verifier.Admit(t.Context(), kernel("stock", 1), nil); err != nil {
		t.Error(err)
	}
	if err := s.verifier.Admit(t.Context(), kernel("stock", 1), s.sign(kernel("stock", 1), 0)); !errors.Is(err, signing.ErrFloor) {
		t.Errorf("signed: %v", err)
	}
	s.verifier.Stock = []string{}
	if err := s.verifier.Admit(t.Context(), kernel("stock", 1), nil); !errors.Is(err, ErrKernel) || !errors.Is(err, signing.ErrUnsigned) {
		t.Errorf("no file counts: %v", err)
	}
}

func TestSignedStockIsVerified(t *testing.T) {
	s := newSite(t)
	k := kernel("stock", 1)
	if err := s.verifier.Admit(t.Context(), k, s.sign(k, 0)); err != nil {
		t.Error(err)
	}
	k.Version = 2
	if err := s.verifier.Admit(t.Context(), k, s.sign(kernel("stock", 1), 0)); !errors.Is(err, signing.ErrMismatch) {
		t.Error(err)
	}
}

func TestOptionalSignaturesOnlyLog(t *testing.T) {
	s := newSite(t)
	s.verifier.Required = false
	if err := s.verifier.Admit(t.Context(), kernel("mitgcm", 1), nil); err != nil {
		t.Error(err)
	}
	if text := s.log.String(); !strings.Contains(text, "level=WARN") || !strings.Contains(text, "not signed") || !strings.Contains(text, "mitgcm@1") {
		t.Errorf("log: %s", text)
	}
	var none *Verifier
	if err := errors.Join(none.Allow(t.Context(), kernel("x", 1), nil), none.Admit(t.Context(), kernel("x", 1), nil)); err != nil {
		t.Error(err)
	}
}

func FuzzMemory(f *testing.F) {
	f.Add([]byte(`{"format":1,"floors":{"mitgcm":3},"newest":"2026-11-20T12:00:00Z"}`))
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		memory, err := parseMemory(raw)
		if err != nil {
			return
		}
		path := filepath.Join(t.TempDir(), "state")
		if err := writeMemory(path, memory); err != nil {
			return // a time that JSON cannot write
		}
		again, err := readMemory(path)
		if err != nil || !again.Newest.Equal(memory.Newest) || fmt.Sprint(again.Floors) != fmt.Sprint(memory.Floors) {
			t.Errorf("%+v became %+v, %v", memory, again, err)
		}
	})
}
