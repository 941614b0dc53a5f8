// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/signing"
)

func nobody(string) ([]byte, error) { return nil, errors.New("nobody to ask") }

func write(t *testing.T, name string, text []byte, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, text, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

// signs makes an envelope with the key and has it verified.
func signs(t *testing.T, name string, ask Ask) error {
	t.Helper()
	by, err := Open(t.Context(), name, ask)
	if err != nil {
		return err
	}
	text, err := signing.FormatPublicKey(by.Public())
	if err != nil {
		t.Fatal(err)
	}
	trust, err := signing.ParseTrust("t", []byte("cluster: a\nkeys:\n- name: k\n  public: |\n    "+strings.ReplaceAll(strings.TrimSpace(string(text)), "\n", "\n    ")))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	k := kb.Kernel{Profile: "p", Version: 1, ImageDigest: "sha256:" + strings.Repeat("1", 64),
		BuildID: strings.Repeat("ab", 20), Release: "6.1", Architecture: "x86_64"}
	envelope, err := signing.Sign(t.Context(), signing.ManifestOf(k, signing.Terms{Cluster: "a", Made: now, Expires: now.Add(time.Hour)}), by)
	if err != nil {
		return err
	}
	_, err = signing.Verify(envelope, trust, k, signing.Memory{}, now)
	return err
}

func TestKeyFiles(t *testing.T) {
	plain, _, err := Generate(nil)
	if err != nil {
		t.Fatal(err)
	}
	locked, _, err := Generate([]byte("secret"))
	if err != nil {
		t.Fatal(err)
	}
	say := func(word string) Ask { return func(string) ([]byte, error) { return []byte(word), nil } }
	if err := signs(t, write(t, "k", plain, 0o600), nobody); err != nil {
		t.Error(err)
	}
	if err := signs(t, write(t, "k", locked, 0o600), say("secret")); err != nil {
		t.Error(err)
	}
	for name, c := range map[string]struct {
		text []byte
		mode os.FileMode
		ask  Ask
		word string
	}{
		"wrong passphrase": {locked, 0o600, say("guess"), "incorrect password"},
		"nobody to ask":    {locked, 0o600, nobody, "nobody to ask"},
		"for all to read":  {plain, 0o644, nobody, "chmod 600"},
		"no PEM":           {[]byte("x"), 0o600, nobody, "PEM"},
		"other PEM":        {[]byte(strings.ReplaceAll(string(plain), "PRIVATE", "EC PRIVATE")), 0o600, nobody, "PKCS#8"},
		"two":              {append(append([]byte{}, plain...), plain...), 0o600, nobody, "one PEM block"},
		"empty":            {nil, 0o600, nobody, "PEM"},
	} {
		if err := signs(t, write(t, "k", c.text, c.mode), c.ask); err == nil || !strings.Contains(err.Error(), c.word) {
			t.Errorf("%s: error %v lacks %q", name, err, c.word)
		}
	}
	if err := signs(t, t.TempDir(), nobody); err == nil {
		t.Error("a folder is a key")
	}
}

// OpenSSL writes what administrators have.
func TestKeysOfOpenSSL(t *testing.T) {
	for name, args := range map[string][]string{
		"ed25519":   {"genpkey", "-algorithm", "ed25519"},
		"encrypted": {"genpkey", "-algorithm", "ed25519", "-aes256", "-pass", "pass:secret"},
		"p256":      {"genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"},
		"p384":      {"genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-384"},
	} {
		text, err := exec.CommandContext(t.Context(), "openssl", args...).Output()
		if err != nil {
			t.Fatalf("openssl: %v", err)
		}
		if err := signs(t, write(t, "k", text, 0o600), func(string) ([]byte, error) { return []byte("secret"), nil }); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	rsa, err := exec.CommandContext(t.Context(), "openssl", "genpkey", "-algorithm", "RSA").Output()
	if err != nil {
		t.Fatal(err)
	}
	if err := signs(t, write(t, "k", rsa, 0o600), nobody); !errors.Is(err, signing.ErrKey) {
		t.Errorf("RSA: %v", err)
	}
}

const module = "/usr/lib/softhsm/libsofthsm2.so"

// A real PKCS#11 module, which happens to keep its keys in files.
func TestToken(t *testing.T) {
	for _, needed := range []string{"softhsm2-util", tokenProgram} {
		if _, err := exec.LookPath(needed); err != nil {
			if os.Getenv("CI") == "true" {
				t.Fatal(err)
			}
			t.Skipf("needs softhsm2 and opensc: %v", err)
		}
	}
	dir := t.TempDir()
	conf := filepath.Join(dir, "conf")
	if err := os.WriteFile(conf, []byte("directories.tokendir = "+dir+"\nobjectstore.backend = file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SOFTHSM2_CONF", conf)
	run := func(name string, args ...string) {
		if out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput(); err != nil {
			t.Fatalf("%s %v: %v: %s", name, args, err, out)
		}
	}
	run("softhsm2-util", "--init-token", "--free", "--label", "kb", "--pin", "1234", "--so-pin", "5678")
	pin := func(string) ([]byte, error) { return []byte("1234\n"), nil }
	for id, kind := range map[string]string{"01": "EC:prime256v1", "02": "EC:edwards25519"} {
		run(tokenProgram, "--module", module, "--token-label", "kb", "--login", "--pin", "1234", "--keypairgen",
			"--key-type", kind, "--id", id, "--label", "key"+id)
		uri := "pkcs11:token=kb;id=%" + id + "?module-path=" + module
		if err := signs(t, uri, pin); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
		if err := signs(t, uri+"&pin-source=file:"+write(t, "pin", []byte("1234"), 0o600), nobody); err != nil {
			t.Errorf("%s, PIN from a file: %v", kind, err)
		}
	}
	uri := "pkcs11:token=kb;id=%01?module-path=" + module
	if err := signs(t, uri, func(string) ([]byte, error) { return []byte("9999"), nil }); err == nil || strings.Contains(err.Error(), "9999") {
		t.Errorf("a wrong PIN: %v", err)
	}
	if err := signs(t, strings.Replace(uri, "%01", "%07", 1), pin); err == nil {
		t.Error("signed with a key that is not there")
	}
}

func TestTokenURI(t *testing.T) {
	for uri, word := range map[string]string{
		"pkcs11:token=a":                                                 "token and id",
		"pkcs11:token=a;id=%01?module-path=x.so":                         "absolute",
		"pkcs11:token=a;id=%01;id=%02?module-path=/x":                    `"id"`,
		"pkcs11:token=a;id=%01?module-path=/x&pin-value=1":               `"pin-value"`,
		"pkcs11:token=a;id=%zz?module-path=/x":                           `"id"`,
		"pkcs11:token=a;id=%01?module-path=/x&pin-source=file:../secret": "pin-source",
	} {
		if _, err := Open(context.Background(), uri, nobody); !errors.Is(err, kb.ErrInvalid) || !strings.Contains(err.Error(), word) {
			t.Errorf("%s: error %v lacks %q", uri, err, word)
		}
	}
}
