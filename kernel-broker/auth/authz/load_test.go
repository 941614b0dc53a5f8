// SPDX-License-Identifier: Apache-2.0

package authz_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/authz"
)

func TestSample(t *testing.T) {
	text, err := os.ReadFile("policy.sample.yaml")
	if err != nil {
		t.Fatal(err)
	}
	p, err := authz.Parse("sample", text)
	if err != nil {
		t.Fatal(err)
	}
	line := func(words string) int {
		before, _, found := strings.Cut(string(text), words)
		if !found {
			t.Fatalf("no %q in the sample", words)
		}
		return strings.Count(before, "\n") + 1
	}
	local := authz.Place{Local: true}
	for _, c := range []struct {
		subject authz.Subject
		action  authz.Action
		object  string
		allowed bool
		at      string
	}{
		{authz.Subject{User: "x", Groups: []string{"ocean"}}, authz.Use, "mitgcm", true, "- groups: [ocean]"},
		{authz.Subject{User: "x"}, authz.Use, "mitgcm", true, "- accounts: [climate]"},
		{authz.Subject{User: "x", Job: &authz.Job{Account: "climate", Partition: "debug"}}, authz.Use, "mitgcm", false, "- groups: [ocean]"},
		{authz.Subject{User: "x", Job: &authz.Job{Partition: "debug"}}, authz.Use, "gromacs-debug", true, "- everybody: true\n        partitions"},
		{authz.Subject{User: "x"}, authz.Use, "experimental", false, "experimental:"},
		{authz.Subject{User: "x"}, authz.Use, "other", true, "- everybody: true\n\nprofiles"},
		{authz.Subject{User: "x"}, authz.Profile, "other", true, "- everybody: true\n\nprofiles"},
		{authz.Subject{User: "x"}, authz.Profile, "gromacs-debug", false, "- groups: [performance]"},
		{authz.Subject{User: "x", Groups: []string{"performance"}}, authz.Profile, "gromacs-debug", true, "- groups: [performance]"},
		{authz.Subject{User: "carol", From: local}, authz.Publish, "mitgcm", true, "- users: [carol]"},
		{authz.Subject{User: "kernel-forge", From: local}, authz.Publish, "other", true, "builders:\n"},
		{authz.Subject{User: "y", Groups: []string{"hpc-admins"}, From: local}, authz.Retire, "other", true, "administrators:\n"},
	} {
		a := p.Decide(authz.Question{Subject: c.subject, Action: c.action, Object: c.object})
		if a.Allowed != c.allowed || a.Line != line(c.at) {
			t.Errorf("%s %s %s: %+v, want line %d", c.subject, c.action, c.object, a, line(c.at))
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for text, words := range map[string]string{
		"":                                  "empty file",
		"# nothing\n":                       "empty file",
		"a: b: c":                           "p.yaml",
		"admins: {}\n":                      `p.yaml: line 1: unknown key "admins"`,
		"builders:\n  user: [x]\n":          `line 2: unknown key "user"`,
		"builders: {}\n---\nbuilders: {}\n": "more than one document",
		"builders: {}\nbuilders: {}\n":      "already defined",
		"default:\n  use:\n":                "p.yaml:2: a value is missing",
		"default: ~\n":                      "p.yaml:1: a value is missing",
		"default: {use: everybody}\n":       "p.yaml",
		"default:\n  use:\n    - {}\n":      "p.yaml:3: the rule says for whom it is by nothing",
		"default:\n  use:\n    - everybody: false\n":                    "p.yaml:3: the rule says for whom",
		"default:\n  use:\n    - users: []\n":                           "p.yaml:3: the list is empty",
		"default:\n  use:\n    - everybody: true\n      users: [a]\n":   "p.yaml:3: a rule is for everybody or",
		"default:\n  profile:\n    - {}\n":                              "p.yaml:3: the rule says for whom it is by nothing",
		"default:\n  publish:\n    - everybody: true\n":                 "p.yaml:3: a kernel that everybody may publish",
		"default:\n  publish:\n    - users: [a]\n      accounts: [b]\n": "p.yaml:3: nobody publishes with an account",
		"profiles:\n  Bad:\n    use: []\n":                              `p.yaml:2: profile name "Bad"`,
		"profiles:\n  a@1:\n    use: []\n":                              "p.yaml:2",
		"profiles:\n  stock:\n    use: []\n":                            "p.yaml:3: every job may run on stock",
		"administrators:\n  from: [elsewhere]\n":                        `p.yaml:2: "elsewhere" is neither`,
		"administrators:\n  from:\n    - local\n    - 10.0.0.7/24\n":    `p.yaml:4: "10.0.0.7/24"`,
		"administrators:\n  from: [10.0.0.0/33]\n":                      "p.yaml:2",
		"administrators:\n  from: ['fe80::1%eth0']\n":                   "p.yaml:2",
		"administrators:\n  users: ['a b', '']\n":                       `p.yaml:2: "" cannot be a name`,
		"administrators:\n  users:\n    - a\n    - a\n":                 `p.yaml:4: "a" is named twice`,
		"administrators:\n  users: ['a,b']\n":                           `"a,b" cannot be a name`,
		"administrators:\n  users: &x [a]\nbuilders:\n  users: *x\n":    "p.yaml:2: anchors and aliases",
		"default: &d {use: []}\nprofiles:\n  a:\n    <<: *d\n":          "p.yaml:4: << is not read here",
		"profiles:\n  a: {use: [{users: [x], every: true}]}\n":          `unknown key "every"`,
		"default:\n  use:\n    - everybody: maybe\n":                    "p.yaml",
		"administrators:\n  users:\n    - \"x\\ny\"\n":                  "p.yaml:3",
		strings.Repeat("# long\n", 200_000):                             "bytes",
	} {
		p, err := authz.Parse("p.yaml", []byte(text))
		if p != nil || !errors.Is(err, kb.ErrInvalid) || !strings.Contains(err.Error(), words) {
			t.Errorf("%.80q: %v, want %q", text, err, words)
		}
	}
}

func TestLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.yaml")
	write := func(text string, mode os.FileMode) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	write("builders:\n  users: [a]\n", 0o644)
	l, err := authz.Load(path, []uint32{5})
	if err != nil || l.Policy.Always[0] != 5 || !strings.HasPrefix(l.Digest, "sha256:") || !strings.Contains(l.Text, "builders") || l.Policy.File != path {
		t.Errorf("Load = %+v, %v", l, err)
	}
	write("builders: {}\n", 0o664)
	if _, err := authz.Load(path, nil); err == nil || !strings.Contains(err.Error(), "chmod go-w") {
		t.Errorf("a file that a group may write: %v", err)
	}
	if _, err := authz.Load(filepath.Dir(path), nil); err == nil {
		t.Error("a folder was read")
	}
	if _, err := authz.Load(path+"x", nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
}

// A text that is read means what it says: who is allowed something is named
// in it, or everybody is.
func FuzzParse(f *testing.F) {
	if text, err := os.ReadFile("policy.sample.yaml"); err == nil {
		f.Add(text)
	}
	f.Add([]byte("default:\n  use:\n    - everybody: true\n      partitions: [a]\nprofiles: {a: {publish: [{users: [b]}]}}\n"))
	f.Add([]byte("administrators: {from: [local, ::1]}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := authz.Parse("p.yaml", text)
		if err != nil {
			if !errors.Is(err, kb.ErrInvalid) {
				t.Errorf("%q: %v", text, err)
			}
			return
		}
		nobody := authz.Subject{UID: 4294967294, User: "\x00 nobody, named nowhere", From: authz.Place{Local: true}}
		for _, action := range authz.Actions {
			for _, object := range []string{"a", "stock", "mitgcm@2", ""} {
				a := p.Decide(authz.Question{Subject: nobody, Action: action, Object: object})
				open := action == authz.View || action == authz.Use || action == authz.Profile
				if a.Allowed && !open && !strings.Contains(string(text), "4294967294") {
					t.Errorf("%q allows %s %s to nobody: %+v", text, action, object, a)
				}
				if a.Reason == "" || a.Line < 0 || a.Line > strings.Count(string(text), "\n")+1 {
					t.Errorf("%q: %+v", text, a)
				}
			}
		}
	})
}
