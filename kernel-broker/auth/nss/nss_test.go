// SPDX-License-Identifier: Apache-2.0

package nss

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// The host that the tests run on has root, as every host does.
func TestTheHost(t *testing.T) {
	d := New()
	p, err := d.ByUID(t.Context(), 0)
	if err != nil || p.Name != "root" || p.UID != 0 || !slices.Contains(p.Groups, "root") {
		t.Errorf("uid 0: %+v, %v", p, err)
	}
	for _, name := range []string{"root", "0"} {
		if p, err := d.ByName(t.Context(), name); err != nil || p.UID != 0 || p.Name != "root" {
			t.Errorf("%s: %+v, %v", name, p, err)
		}
	}
	if _, err := d.ByUID(t.Context(), 4294960001); !errors.Is(err, kb.ErrNotFound) {
		t.Errorf("a uid without a name: %v", err)
	}
	for _, name := range []string{"", "-h", "--help", "a b", "a:b", "a,b", "x\ny", strings.Repeat("x", 300)} {
		if _, err := d.ByName(t.Context(), name); !errors.Is(err, kb.ErrInvalid) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// A group is known by the name that the host has for it.
func TestGroup(t *testing.T) {
	if has, err := New().Group(t.Context(), "root"); err != nil || has != "root" {
		t.Errorf("root: %q, %v", has, err)
	}
	d, _ := scripted(t, `case $2 in
Ocean|ocean) echo "ocean:x:7:alice,bob" ;;
"domain users") echo "domain users:x:8:" ;;
away) exit 3 ;;
odd) echo odd ;;
*) exit 2 ;;
esac
`, "")
	for _, c := range []struct {
		name, has string
		err       error
	}{
		{"ocean", "ocean", nil}, {"Ocean", "ocean", nil}, {"domain users", "domain users", nil},
		{"nobody-has-it", "", kb.ErrNotFound}, {"away", "", kb.ErrUnavailable}, {"odd", "", kb.ErrUnavailable},
		{"-h", "", kb.ErrInvalid}, {"", "", kb.ErrInvalid}, {"a\nb", "", kb.ErrInvalid},
	} {
		if has, err := d.Group(t.Context(), c.name); has != c.has || !errors.Is(err, c.err) {
			t.Errorf("%q: %q, %v", c.name, has, err)
		}
	}
}

// scripted is a directory with programs of the test's.
func scripted(t *testing.T, getent, id string) (*Directory, func() int) {
	t.Helper()
	dir := t.TempDir()
	program := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("#!/bin/sh\necho x >> "+dir+"/calls\n"+text), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	d := New()
	d.getent, d.id = program("getent", getent), program("id", id)
	return d, func() int {
		text, err := os.ReadFile(filepath.Join(dir, "calls"))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(text), "\n")
	}
}

const alice = `echo "alice:x:20001:20001:Alice:/home/alice:/bin/sh"` + "\n"

func TestAnswersAreKept(t *testing.T) {
	d, calls := scripted(t, alice, `printf 'users\0domain users\0'`+"\n")
	now := time.Now()
	d.Now = func() time.Time { return now }
	for range 3 {
		p, err := d.ByUID(t.Context(), 20001)
		if err != nil || !slices.Equal(p.Groups, []string{"users", "domain users"}) {
			t.Fatalf("%+v, %v", p, err)
		}
	}
	if n := calls(); n != 2 {
		t.Errorf("%d processes for one answer", n)
	}
	now = now.Add(keep)
	if _, err := d.ByUID(t.Context(), 20001); err != nil || calls() != 4 {
		t.Errorf("after a while: %d processes, %v", calls(), err)
	}
	d.Forget()
	if _, err := d.ByUID(t.Context(), 20001); err != nil || calls() != 6 {
		t.Errorf("forgotten: %d processes, %v", calls(), err)
	}
}

// That there is nobody is believed for a moment only: the name service may have
// been away.
func TestNobodyIsNotKeptForLong(t *testing.T) {
	away := filepath.Join(t.TempDir(), "away")
	if err := os.WriteFile(away, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	d, calls := scripted(t, "test -e "+away+" && exit 2\n"+alice, `printf 'users\0'`+"\n")
	now := time.Now()
	d.Now = func() time.Time { return now }
	for range 3 {
		if _, err := d.ByUID(t.Context(), 20001); !errors.Is(err, kb.ErrNotFound) {
			t.Fatal(err)
		}
	}
	if n := calls(); n != 1 {
		t.Errorf("%d processes for one answer", n)
	}
	if err := os.Remove(away); err != nil {
		t.Fatal(err)
	}
	now = now.Add(keepNone)
	if p, err := d.ByUID(t.Context(), 20001); err != nil || p.Name != "alice" {
		t.Errorf("the name service is back: %+v, %v", p, err)
	}
}

// An answer that was under way when all were dropped is not kept: whoever had
// them dropped wants to hear what is so from then on.
func TestAnAnswerUnderWayIsForgotten(t *testing.T) {
	dir := t.TempDir()
	asked, goOn := filepath.Join(dir, "asked"), filepath.Join(dir, "go")
	d, calls := scripted(t, "touch "+asked+"; until test -e "+goOn+"; do sleep 0.01; done\n"+alice, `printf 'users\0'`+"\n")
	done := make(chan error)
	go func() {
		_, err := d.ByUID(t.Context(), 20001)
		done <- err
	}()
	for {
		if _, err := os.Stat(asked); err == nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	d.Forget()
	if err := os.WriteFile(goOn, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	before := calls()
	if _, err := d.ByUID(t.Context(), 20001); err != nil || calls() == before {
		t.Errorf("the answer from before is kept, %v", err)
	}
}

// A host that cannot say is not a host that says no.
func TestAHostThatCannotSay(t *testing.T) {
	for what, c := range map[string]struct{ getent, id string }{
		"getent fails":          {"exit 1\n", "printf 'users\\0'\n"},
		"getent prints rubbish": {"echo alice\n", "printf 'users\\0'\n"},
		"two users":             {alice + alice, "printf 'users\\0'\n"},
		"another user":          {`echo "bob:x:20002:1::/:/bin/sh"` + "\n", "printf 'users\\0'\n"},
		"id fails":              {alice, "exit 3\n"},
		"id prints nothing":     {alice, "exit 1\n"},
		"killed":                {alice, "kill -9 $$\n"},
	} {
		d, calls := scripted(t, c.getent, c.id)
		if p, err := d.ByUID(t.Context(), 20001); !errors.Is(err, kb.ErrUnavailable) || errors.Is(err, kb.ErrNotFound) {
			t.Errorf("%s: %+v, %v", what, p, err)
		}
		before := calls()
		_, _ = d.ByUID(t.Context(), 20001)
		if calls() == before && what != "another user" {
			t.Errorf("%s: a failure was kept", what)
		}
	}
	d, _ := scripted(t, "exit 2\n", "")
	if _, err := d.ByUID(t.Context(), 20001); !errors.Is(err, kb.ErrNotFound) {
		t.Errorf("not found: %v", err)
	}
	d, _ = scripted(t, alice, "printf 'users\\0004711\\0'; exit 1\n")
	if p, err := d.ByUID(t.Context(), 20001); err != nil || !slices.Equal(p.Groups, []string{"users", "4711"}) {
		t.Errorf("a group without a name: %+v, %v", p, err)
	}
	d = New()
	d.getent = "/nonexistent/getent"
	if _, err := d.ByUID(t.Context(), 1); !errors.Is(err, kb.ErrUnavailable) {
		t.Errorf("no getent: %v", err)
	}
}

func FuzzParsePasswd(f *testing.F) {
	f.Add([]byte("alice:x:20001:20001:Alice:/home/alice:/bin/sh\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := parsePasswd(text)
		if err == nil && (p.Name == "" || strings.ContainsAny(p.Name, ":\n")) {
			t.Errorf("%q is %+v", text, p)
		}
	})
}
