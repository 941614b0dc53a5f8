// SPDX-License-Identifier: Apache-2.0

package authz

import (
	"context"
	"slices"
	"strings"
	"testing"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// known are users and groups as the host calls them, by what is asked for.
type known map[string]string

func (k known) Group(_ context.Context, name string) (string, error) {
	switch has := k[name]; has {
	case "":
		return "", kb.ErrNotFound
	case "?":
		return "", kb.ErrUnavailable
	default:
		return has, nil
	}
}

func (k known) ByName(ctx context.Context, name string) (kb.User, error) {
	has, err := k.Group(ctx, name)
	return kb.User{Name: has}, err
}

func parse(t *testing.T, lines ...string) *Policy {
	t.Helper()
	p, err := Parse("p.yaml", []byte(strings.Join(lines, "\n")+"\n"))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// A typo leaves a kernel open to everybody, so names that nothing has are told.
func TestUnknownProfiles(t *testing.T) {
	p := parse(t, "profiles:", "  mitgmc:", "    use: []", "  stock:", "    publish: []", "  gromacs-instrumented:", "    use: []", "  quite-another:", "    use: []")
	for _, c := range []struct {
		name       string
		registered []string
		warnings   []string
	}{
		{"none is registered", nil, []string{
			`p.yaml:6: no profile "gromacs-instrumented" is registered, so its rules restrict no kernel`,
			`p.yaml:2: no profile "mitgmc" is registered, so its rules restrict no kernel`,
			`p.yaml:8: no profile "quite-another" is registered, so its rules restrict no kernel`,
		}},
		{"one of another spelling", []string{"stock", "gromacs", "mitgcm", "quite-another"}, []string{
			`p.yaml:2: no profile "mitgmc" is registered, so its rules restrict no kernel; did you mean "mitgcm"?`,
		}},
		{"an instrumented kernel first", []string{"gromacs-instrumented", "mitgmc-instrumented", "quite-another"}, nil},
	} {
		if got := p.UnknownProfiles(c.registered); !slices.Equal(got, c.warnings) {
			t.Errorf("%s: %q", c.name, got)
		}
	}
}

func TestUnknownPeople(t *testing.T) {
	p := parse(t, "administrators:", "  users: [root, opps, '4711']", "  groups: [wheel]", "builders:", "  users: [Carol, away]",
		"profiles:", "  a:", "    use:", "      - groups: [ocaen, wheel]", "      - users: [opps]")
	host := known{"root": "root", "wheel": "wheel", "Carol": "carol", "away": "?"}
	want := []string{
		`p.yaml:4: this host knows no user "Carol" (getent passwd Carol); did you mean "carol"?`,
		`p.yaml:1: this host knows no user "opps" (getent passwd opps)`,
		`p.yaml:9: this host knows no group "ocaen" (getent group ocaen)`,
	}
	if got := p.UnknownPeople(t.Context(), host); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// An application's instrumented kernel is as restricted as its own, unless the policy names it.
func TestInstrumentedKernel(t *testing.T) {
	const base = "mitgcm"
	closed, open := []string{"  mitgcm:", "    use: []", "    publish:", "      - users: [carol]"}, []string{"  mitgcm-instrumented:", "    use:", "      - everybody: true"}
	alice, carol := user("alice"), user("carol")
	for _, c := range []struct {
		name     string
		profiles []string
		profile  string
		use      bool // by alice
		publish  bool // by carol
		line     int  // that decides the use
	}{
		{"its own", closed, base, false, true, 2},
		{"inherited", closed, base + kb.InstrumentedSuffix, false, true, 2},
		{"of a version", closed, base + kb.InstrumentedSuffix + "@3", false, true, 2},
		{"another one's", closed, "lammps" + kb.InstrumentedSuffix, true, false, 0},
		{"named, and the rest inherited", append(slices.Clone(closed), open...), base + kb.InstrumentedSuffix, true, true, 8},
		{"not the other way", open, base, true, false, 0},
	} {
		p := parse(t, append([]string{"profiles:"}, c.profiles...)...)
		if a := p.Decide(Question{Subject: alice, Action: Use, Object: c.profile}); a.Allowed != c.use || a.Line != c.line {
			t.Errorf("%s: use %+v", c.name, a)
		}
		if a := p.Decide(Question{Subject: carol, Action: Publish, Object: c.profile}); a.Allowed != c.publish {
			t.Errorf("%s: publish %+v", c.name, a)
		}
		if p.Restricted(profileOf(c.profile)) == c.use {
			t.Errorf("%s: in the snapshot restricted: %t", c.name, c.use)
		}
	}
}
