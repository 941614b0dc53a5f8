// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/signing"
)

// key makes a signing key and a trust list that holds it.
func (f *fixture) key(t *testing.T) (path string, trust signing.Trust) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "release.pem")
	entry := f.must(0, "", "key", "generate", path, "--passphrase-file", "-")
	trust, err := signing.ParseTrust("t", []byte("cluster: alpha\nkeys:\n"+entry))
	if err != nil {
		t.Fatal(err)
	}
	return path, trust
}

func (f *fixture) version(t *testing.T, ref kb.Ref) kb.ProfileVersion {
	t.Helper()
	p, err := f.catalog.Get(t.Context(), ref.Profile)
	if err != nil {
		t.Fatal(err)
	}
	v, err := p.Version(ref.Version)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func (f *fixture) verify(t *testing.T, trust signing.Trust, ref kb.Ref) signing.Manifest {
	t.Helper()
	v := f.version(t, ref)
	verified, err := signing.Verify(v.Envelope, trust, v.Kernel, signing.Memory{}, time.Now())
	if err != nil {
		t.Error(err)
	}
	return verified.Manifest
}

func TestKeys(t *testing.T) {
	f := newFixture(t)
	path, trust := f.key(t)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("key file: %v, %v", info, err)
	}
	f.must(1, "file exists", "key", "generate", path, "--passphrase-file", "-")
	if shown := f.must(0, "", "key", "show", path); !strings.Contains(shown, trust.Keys[0].ID) {
		t.Errorf("shown: %s", shown)
	}
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("correct horse\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	locked := filepath.Join(t.TempDir(), "locked.pem")
	f.must(0, "", "key", "generate", locked, "--passphrase-file", secret)
	text, err := os.ReadFile(locked)
	if err != nil || !strings.Contains(string(text), "ENCRYPTED PRIVATE KEY") {
		t.Errorf("%s, %v", text, err)
	}
	f.must(0, "", "key", "show", locked, "--passphrase-file", secret)
	f.must(1, "incorrect password", "key", "show", locked, "--passphrase-file", path)
	if err := os.Chmod(locked, 0o644); err != nil {
		t.Fatal(err)
	}
	f.must(3, "chmod 600", "key", "show", locked, "--passphrase-file", secret)
}

// What configuration management checks before it installs.
func TestCheckTrustListAndSettings(t *testing.T) {
	f := newFixture(t)
	key, _ := f.key(t)
	list := "cluster: alpha\nkeys:\n" + f.must(0, "", "key", "show", key)
	file := func(name, text string) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	f.must(0, "is a trust list", "key", "check-trust", file("trust.yaml", list))
	f.must(0, "is a trust list", "key", "check-trust", "../auth/signing/trust.sample.yaml")
	f.must(3, `unknown key "flors"`, "key", "check-trust", file("trust.yaml", list+"flors: {mitgcm: 2}\n"))
	f.must(3, "keys: there is none", "key", "check-trust", file("trust.yaml", "cluster: alpha\nkeys: []\n"))
	f.must(1, "no such file", "key", "check-trust", key+".yaml")

	f.must(0, "is valid", "config", "check", file("client.yaml", "broker: ctl1:7440\ncluster: alpha\n"))
	f.must(0, "is valid", "config", "check", "../api/client/client.yaml")
	f.must(3, `unknown key "brokr"`, "config", "check", file("client.yaml", "brokr: ctl1:7440\n"))
	f.must(1, "no such file", "config", "check", key+".yaml")
}

func TestRegisterSigned(t *testing.T) {
	f := newFixture(t)
	path, trust := f.key(t)
	kernel := bootable(t, t.TempDir(), "mitgcm")
	register := func(more ...string) []string {
		return append([]string{"kernel", "register", "--no-boot-test", "--profile", "mitgcm", "--kernel", filepath.Join(kernel, "bzImage"),
			"--driver", "virtio_net,ext4"}, more...)
	}
	signed := []string{"--sign-key", path, "--cluster", "alpha"}
	f.must(2, "--cluster", register("--sign-key", path)...)
	f.must(2, "--floor requires --sign-key", register("--floor", "1")...)
	f.must(0, "mitgcm applied", register(append(signed, "--floor", "1", "--reason", "first")...)...)
	if m := f.verify(t, trust, kb.Ref{Profile: "mitgcm", Version: 1}); m.Floor != 1 || m.Expires.Sub(m.Made) != 365*24*time.Hour {
		t.Errorf("signed: %+v", m)
	}
	// The floor never sinks, even if not given again.
	f.must(0, "", register(append(signed, "--argument", "quiet", "--floor", "2")...)...)
	f.must(0, "", register(append(signed, "--argument", "nosmt")...)...)
	if m := f.verify(t, trust, kb.Ref{Profile: "mitgcm", Version: 3}); m.Floor != 2 {
		t.Errorf("signed: %+v", m)
	}
	v := f.version(t, kb.Ref{Profile: "mitgcm", Version: 1})
	if v.Kernel.BuildID != strings.Repeat("ab", 20) || v.Kernel.Release != "6.1.0-mitgcm" || strings.Join(v.Kernel.Drivers, " ") != "ext4 virtio_net" {
		t.Errorf("kernel: %+v", v.Kernel)
	}
	if out := f.must(0, "", "kernel", "show", "mitgcm@3"); !strings.Contains(out, "for cluster alpha, until") || !strings.Contains(out, "floor 2") {
		t.Errorf("shown:\n%s", out)
	}
	if out := f.must(0, "", "profile", "show", "mitgcm"); !strings.Contains(out, "registered  1") || !strings.Contains(out, "first (not booted before)") {
		t.Errorf("shown:\n%s", out)
	}
}

func TestSignAgain(t *testing.T) {
	f := newFixture(t)
	dir, kernels := invented(t)
	f.must(0, "", "profile", "apply", dir, "--kernels", kernels)
	path, trust := f.key(t)
	ref := kb.Ref{Profile: "mitgcm", Version: 1}
	if out := f.must(0, "", "kernel", "show", "mitgcm"); !strings.Contains(out, "not signed") {
		t.Errorf("shown:\n%s", out)
	}
	f.must(0, "mitgcm@1 signed", "kernel", "sign", "mitgcm@1", "--sign-key", path, "--cluster", "alpha", "--as-described", "--valid", "1h", "--reason", "late")
	if m := f.verify(t, trust, ref); m.Expires.Sub(m.Made) != time.Hour {
		t.Errorf("signed: %+v", m)
	}
	f.must(0, "", "kernel", "sign", "mitgcm@1", "--sign-key", path, "--cluster", "alpha")
	if m := f.verify(t, trust, ref); m.Expires.Sub(m.Made) != 365*24*time.Hour {
		t.Errorf("signed again: %+v", m)
	}
	f.must(3, "not found", "kernel", "sign", "mitgcm@9", "--sign-key", path, "--cluster", "alpha")
	f.must(2, "names no version", "kernel", "sign", "mitgcm", "--sign-key", path, "--cluster", "alpha")
	// A whole folder of profiles at once.
	g := newFixture(t)
	g.must(0, "", "profile", "apply", dir, "--kernels", kernels, "--sign-key", path, "--cluster", "alpha")
	g.verify(t, trust, ref)
}

// Errors in an image are reported before anything is stored.
func TestRegisterRefusesBeforeItStores(t *testing.T) {
	f := newFixture(t)
	kernel := bootable(t, t.TempDir(), "mitgcm")
	image := filepath.Join(kernel, "bzImage")
	other := filepath.Join(t.TempDir(), "other")
	if err := os.WriteFile(other, []byte("no kernel at all"), 0o644); err != nil {
		t.Fatal(err)
	}
	foreign := bootable(t, t.TempDir(), "gromacs")
	for words, arguments := range map[string][]string{
		"no bzImage":             {"--kernel", other, "--driver", "x"},
		"drivers are unknown":    {"--kernel", image},
		`release is "6.1.0-grom`: {"--kernel", image, "--manifest", filepath.Join(foreign, "kernel.json")},
		"not the one inside":     {"--kernel", image, "--driver", "x", "--config-file", other},
		"no such file":           {"--kernel", image + "x", "--driver", "x"},
		"no regular file":        {"--kernel", image, "--initrd", kernel, "--driver", "x"},
	} {
		code, _, stderr := f.run(append([]string{"kernel", "register", "--no-boot-test", "--profile", "mitgcm"}, arguments...)...)
		if code == 0 || !strings.Contains(stderr, words) {
			t.Errorf("%v: exit %d, %s", arguments, code, stderr)
		}
	}
	if n := f.files.count(); n != 0 {
		t.Errorf("stored: %d files", n)
	}
}

func TestUploadStartsAgain(t *testing.T) {
	f := newFixture(t)
	kernel := bootable(t, t.TempDir(), "mitgcm")
	f.files.cut = 1000
	out := []string{"kernel", "register", "--no-boot-test", "--profile", "mitgcm", "--kernel", filepath.Join(kernel, "bzImage"), "--driver", "virtio_net"}
	f.must(0, "the line is cut: unavailable; trying again", out...)
	v := f.version(t, kb.Ref{Profile: "mitgcm", Version: 1})
	if has, err := f.files.Has(v.Kernel.ImageDigest, v.Kernel.ImageSize); !has || err != nil {
		t.Errorf("stored: %v, %v", has, err)
	}
}

func TestLifecycleCommands(t *testing.T) {
	f := newFixture(t)
	kernel := bootable(t, t.TempDir(), "mitgcm")
	for _, argument := range []string{"a", "b"} {
		f.must(0, "", "kernel", "register", "--no-boot-test", "--profile", "mitgcm", "--kernel", filepath.Join(kernel, "bzImage"),
			"--driver", "virtio_net", "--argument", argument)
	}
	f.must(2, `required flag(s) "reason"`, "profile", "promote", "mitgcm@2")
	f.must(3, "no default version before 1", "profile", "rollback", "mitgcm", "--reason", "x")
	f.must(0, "mitgcm@2 is the default version now", "profile", "promote", "mitgcm@2", "--reason", "faster")
	f.must(0, "mitgcm@2 was the default version already", "profile", "promote", "mitgcm@2", "--reason", "faster")
	f.must(0, "mitgcm@1 is the default version now", "profile", "rollback", "mitgcm", "--reason", "slower on n12")
	f.must(0, "mitgcm@2 quarantined", "profile", "quarantine", "mitgcm@2", "--reason", "loses data")
	f.must(3, "quarantined since", "profile", "promote", "mitgcm@2", "--reason", "x")
	f.must(0, "", "profile", "release", "mitgcm@2", "--reason", "the disk was broken")
	f.must(2, "names no version", "profile", "quarantine", "mitgcm", "--reason", "x")
	f.must(3, "stock", "profile", "quarantine", "stock@1", "--reason", "x")
	out := f.must(0, "", "profile", "show", "mitgcm")
	for _, words := range []string{"promoted     2", "faster", "rolled-back  1", "slower on n12", "quarantined  2", "released     2", "the disk was broken", "uid "} {
		if !strings.Contains(out, words) {
			t.Errorf("history lacks %q:\n%s", words, out)
		}
	}
}

func TestArtifacts(t *testing.T) {
	f := newFixture(t)
	f.files.keep([]byte("needed"))
	f.files.keep(make([]byte, 1<<20))
	out := f.must(0, "", "artifact", "list")
	if !strings.Contains(out, "mitgcm@1") || !strings.Contains(out, "nothing") || !strings.Contains(out, "2 files, 1.0 MiB of 1.0 GiB") {
		t.Errorf("list:\n%s", out)
	}
	f.must(0, "would remove 1 file, 1.0 MiB", "artifact", "gc", "--dry-run")
	f.must(0, "removed 1 file, 1.0 MiB", "artifact", "gc")
	f.must(0, "removed 0 files", "artifact", "gc")
}
