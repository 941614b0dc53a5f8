// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/audit"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/authz"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/nss"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/server"
)

const somePolicy = `profiles:
  mitgcm:
    use:
      - users: [root]
        partitions: [main]
      - accounts: [climate]
`

// guarded gives the fixture's broker a policy from a file, and an audit log.
func guarded(t *testing.T, text string) (change func(*server.Options), g *authz.Authorizer, file, dir string) {
	t.Helper()
	file, dir = filepath.Join(t.TempDir(), "policy.yaml"), filepath.Join(t.TempDir(), "audit")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	quiet := slog.New(slog.DiscardHandler)
	record, err := audit.Open(audit.Options{Dir: dir, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := record.Close(); err != nil {
			t.Error(err)
		}
	})
	g, err = authz.New(authz.Options{File: file, Always: []uint32{uint32(os.Geteuid())}, Users: nss.New(), Record: record, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	return func(o *server.Options) { o.Authorizer = g }, g, file, dir
}

func TestPolicyCommands(t *testing.T) {
	change, g, file, _ := guarded(t, somePolicy)
	f := newFixture(t, change)
	for _, c := range []struct {
		args []string
		code int
		out  string
	}{
		{[]string{"root", "use", "mitgcm"}, 0, "allowed\n"},
		{[]string{"nobody", "use", "mitgcm"}, 0, "allowed, with account climate\n"},
		{[]string{"nobody", "use", "mitgcm", "--account", "climate", "--partition", "x"}, 0, file + ":6)"},
		{[]string{"nobody", "use", "mitgcm", "--account", "ocean"}, 3, "it is for user root and partition main; or account climate (" + file + ":4)"},
		{[]string{"nobody", "use", "lammps@2"}, 0, "allowed\n"},
		{[]string{"nobody", "publish", "mitgcm"}, 3, `denied` + "\n" + `user "nobody" may not publish profile "mitgcm"`},
		{[]string{"nobody", "view"}, 0, "every authenticated user"},
		{[]string{"root", "retire", "mitgcm", "--from", "10.0.0.1"}, 3, "and came from 10.0.0.1"},
	} {
		code, out, errs := f.run(append([]string{"policy", "test"}, c.args...)...)
		if code != c.code || !strings.Contains(out, c.out) {
			t.Errorf("%v: exit %d\n%s%s", c.args, code, out, errs)
		}
	}
	f.must(3, "is none of", "policy", "test", "root", "fly", "x")
	f.must(3, "is no address", "policy", "test", "root", "view", "--from", "here")
	f.must(3, "not found", "policy", "test", "no-such-user-here", "view")
	f.must(2, "", "policy", "test", "root")
	if out := f.must(0, "", "policy", "test", "root", "view", "--output", "json"); !strings.Contains(out, `"allowed": true`) {
		t.Errorf("JSON: %s", out)
	}

	if out := f.must(0, "", "policy", "show"); !strings.Contains(out, file) || !strings.Contains(out, "accounts: [climate]") {
		t.Errorf("show: %s", out)
	}
	if err := os.WriteFile(file, []byte("profile: {}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	f.must(3, `unknown key "profile"`, "policy", "check", file)
	if err := g.Reload(); err == nil {
		t.Fatal("a bad file is in force")
	}
	if out := f.must(0, "is NOT in force: ", "policy", "show"); !strings.Contains(out, "accounts: [climate]") {
		t.Errorf("show: %s", out)
	}
	f.must(0, "is a policy", "policy", "check", "../auth/authz/policy.sample.yaml")

	plain := newFixture(t)
	if out := plain.must(0, "", "policy", "show"); !strings.Contains(out, "There is no policy file") {
		t.Errorf("show: %s", out)
	}
}

// A name that nothing has is told before the policy is in force, with or without a broker, and is no error.
func TestPolicyCheckWarns(t *testing.T) {
	f := newFixture(t)
	f.registerWith("mitgcm", agentsConfig)
	file := filepath.Join(t.TempDir(), "policy.yaml")
	text := "profiles:\n  mitgmc:\n    use:\n      - users: [root, no-such-user-here]\n      - groups: [no-such-group-here]\n"
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	profile := "warning: " + file + `:2: no profile "mitgmc" is registered, so its rules restrict no kernel; did you mean "mitgcm"?` + "\n"
	people := "warning: " + file + `:4: this host knows no user "no-such-user-here" (getent passwd no-such-user-here)` + "\n" +
		"warning: " + file + `:5: this host knows no group "no-such-group-here" (getent group no-such-group-here)` + "\n"
	if code, _, stderr := f.run("policy", "check", file); code != 0 || stderr != profile+people+file+" is a policy\n" {
		t.Errorf("exit %d: %s", code, stderr)
	}
	code, _, stderr := runAt(t, "unix://"+file+".sock", "policy", "check", file)
	if code != 0 || !strings.Contains(stderr, "warning: names of profiles are not checked: broker at unix://") || !strings.HasSuffix(stderr, people+file+" is a policy\n") {
		t.Errorf("without a broker: exit %d: %s", code, stderr)
	}
}

func TestAuditVerify(t *testing.T) {
	change, _, _, dir := guarded(t, somePolicy)
	f := newFixture(t, change)
	f.must(0, "", "profile", "list")
	f.must(3, "unknown kernel profile", "profile", "retire", "mitgcm")
	out := f.must(0, "the audit log is intact", "audit", "verify", dir)
	_, head, _ := strings.Cut(out, "Head:")
	head = strings.TrimSpace(head)
	if !strings.Contains(out, "Records:") || !strings.Contains(out, "in 1 file") || head == "" {
		t.Errorf("verify: %s", out)
	}
	f.must(0, "", "audit", "verify", dir, "--until", head)
	f.must(1, "1 problem", "audit", "verify", dir, "--until", "1:"+strings.Repeat("0", 64))
	f.must(2, "NUMBER:DIGEST", "audit", "verify", dir, "--until", "x")
	f.must(1, "no such file", "audit", "verify", dir+"x")

	path := filepath.Join(dir, "audit-000000000001.log")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(text), `"allowed":true`, `"allowed":null`, 1)), 0o640); err != nil {
		t.Fatal(err)
	}
	code, out, errs := f.run("audit", "verify", dir)
	if code != 1 || !strings.Contains(out, "was changed after it was written") || !strings.Contains(errs, "is damaged") {
		t.Errorf("a changed record: exit %d\n%s%s", code, out, errs)
	}
	if code, out, _ := f.run("audit", "verify", dir, "--output", "json"); code != 1 || !strings.Contains(out, `"problems"`) {
		t.Errorf("JSON: exit %d\n%s", code, out)
	}
}
