// SPDX-License-Identifier: Apache-2.0

package signing

import (
	"errors"
	"os"
	"strings"
	"testing"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

func public(t testing.TB) string {
	t.Helper()
	text, err := FormatPublicKey(ed(t).Public())
	if err != nil {
		t.Fatal(err)
	}
	return "    " + strings.ReplaceAll(strings.TrimSpace(string(text)), "\n", "\n    ")
}

func TestSampleIsAList(t *testing.T) {
	text, err := os.ReadFile("trust.sample.yaml")
	if err != nil {
		t.Fatal(err)
	}
	trust, err := ParseTrust("trust.sample.yaml", text)
	if err != nil {
		t.Fatal(err)
	}
	if trust.Cluster != "cluster" || len(trust.Keys) != 1 || trust.Floors["mitgcm"] != 2 || trust.Keys[0].NotAfter.IsZero() {
		t.Errorf("list is %+v", trust)
	}
}

func TestParseTrustRefuses(t *testing.T) {
	key := "keys:\n- name: a\n  public: |\n" + public(t) + "\n"
	for name, c := range map[string]struct{ text, words string }{
		"empty":             {"", "empty"},
		"no cluster":        {key, "cluster"},
		"no keys":           {"cluster: a\n", "keys: there is none"},
		"unknown key":       {"cluster: a\nrevokd: {}\n" + key, `line 2: unknown key "revokd"`},
		"two documents":     {"cluster: a\n" + key + "---\ncluster: b\n", "more than one"},
		"twice":             {"cluster: a\n" + key + strings.TrimPrefix(key, "keys:\n"), "twice"},
		"no name":           {"cluster: a\n" + strings.Replace(key, "name: a", `name: ""`, 1), "no name"},
		"other id":          {"cluster: a\n" + strings.Replace(key, "name: a", "name: a\n  id: sha256:00", 1), "its id is sha256:"},
		"private key":       {"cluster: a\n" + strings.ReplaceAll(key, "PUBLIC", "PRIVATE"), "PUBLIC KEY"},
		"rubbish":           {"cluster: a\nkeys: [{name: a, public: x}]\n", "PUBLIC KEY"},
		"period":            {"cluster: a\n" + strings.Replace(key, "name: a", "name: a\n  not_before: 2026-01-02T00:00:00Z\n  not_after: 2026-01-01T00:00:00Z", 1), "not_after"},
		"pattern":           {"cluster: a\n" + strings.Replace(key, "name: a", "name: a\n  profiles: ['[']", 1), "pattern"},
		"revoked what":      {"cluster: a\nrevoked: {digests: [abc]}\n" + key, "revoked"},
		"floor of no name":  {"cluster: a\nfloors: {'A b': 1}\n" + key, "floors"},
		"floor below zero":  {"cluster: a\nfloors: {a: -1}\n" + key, "cannot unmarshal"},
		"large":             {"cluster: a\n#" + strings.Repeat("x", MaxTrust), "bytes"},
		"cluster from afar": {"cluster: 'аlpha'\n" + key, "cluster"},
	} {
		if _, err := ParseTrust("t", []byte(c.text)); !errors.Is(err, kb.ErrInvalid) || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%s: error %v lacks %q", name, err, c.words)
		}
	}
}
