// SPDX-License-Identifier: Apache-2.0

package authz

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

var (
	local  = Place{Local: true}
	login  = Place{Address: netip.MustParseAddr("10.0.0.5")}
	node   = Place{Address: netip.MustParseAddr("10.0.7.9")}
	mapped = Place{Address: netip.MustParseAddr("::ffff:10.0.0.5")}
)

// example is the policy that the tables ask.
func example() *Policy {
	return &Policy{
		File:           "policy.yaml",
		Administrators: Role{Users: []string{"ops"}, Groups: []string{"wheel"}, Local: true, Networks: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")}, Line: 2},
		Builders:       Role{Users: []string{"forge", "4100"}, Local: true, Line: 8},
		Always:         []uint32{0, 64030},
		Default:        Rights{Use: []Rule{{Everybody: true, Line: 11}}, Line: 10},
		Profiles: map[string]Rights{
			"mitgcm": {Line: 13, Use: []Rule{
				{Groups: []string{"ocean", "ice"}, Line: 15},
				{Accounts: []string{"climate"}, Partitions: []string{"main", "long"}, Line: 16},
			}, Publish: []Rule{{Users: []string{"carol"}, Line: 19}}},
			"secret": {Line: 21, Use: []Rule{}},
			"debug":  {Line: 23, Use: []Rule{{Everybody: true, Partitions: []string{"debug"}, Line: 24}}},
		},
	}
}

func user(name string, groups ...string) Subject {
	return Subject{UID: 20000, User: name, Groups: groups, From: local}
}

func from(s Subject, p Place) Subject { s.From = p; return s }

func with(s Subject, accounts ...string) Subject {
	s.Accounts = append([]string{}, accounts...)
	return s
}

func job(s Subject, account, partition string) Subject {
	s.Job = &Job{account, partition}
	return s
}

func TestDecide(t *testing.T) {
	root := Subject{UID: 0, User: "root", From: local}
	for _, c := range []struct {
		subject Subject
		action  Action
		object  string
		allowed bool
		line    int
		words   string // of reason and proviso
	}{
		{user("alice"), View, "", true, 0, `user "alice" may view: every authenticated user`},
		{user("alice"), Use, "lammps", true, 11, "the rule is for everybody (policy.yaml:11)"},
		{user("alice"), Use, "stock", true, 0, "stock is for everybody"},
		{user("alice"), Use, "mitgcm@3", true, 16, "for a job with account climate in partition main or long"},
		{user("alice", "users", "ice"), Use, "mitgcm", true, 15, "the rule is for group ocean or ice (policy.yaml:15)"},
		{job(user("alice"), "climate", "main"), Use, "mitgcm", true, 16, `with account "climate" in partition "main"`},
		{job(user("alice"), "climate", "debug"), Use, "mitgcm", false, 15, "group ocean or ice; or account climate and partition main or long"},
		{job(user("alice"), "", ""), Use, "mitgcm", false, 15, "may not use"},
		{job(user("alice", "ocean"), "", ""), Use, "mitgcm", true, 15, ""},
		// Accounts that Slurm has for the user only take away.
		{with(user("alice"), "climate", "x"), Use, "mitgcm", true, 16, "for a job with account climate in partition main or long"},
		{with(user("alice"), "x", "y\n"), Use, "mitgcm", false, 15, `and Slurm has the accounts "x", "y\n" for this user (policy.yaml:15)`},
		{with(user("alice")), Use, "mitgcm", false, 15, "and Slurm has no account for this user"},
		{with(user("alice"), strings.Split("abcdefghij", "")...), Use, "mitgcm", false, 15, `"g", "h" and 2 more for this user`},
		{with(user("alice", "ice"), "x"), Use, "mitgcm", true, 15, ""},
		{with(user("alice"), "x"), Use, "lammps", true, 11, ""},
		{with(user("alice"), "x"), Use, "debug", true, 24, "in partition debug"},
		{job(with(user("alice"), "x"), "climate", "main"), Use, "mitgcm", false, 15, `the accounts "x"`},
		{job(with(user("alice"), "climate"), "climate", "main"), Use, "mitgcm", true, 16, ""},
		{job(with(user("alice"), "climate", "x"), "x", "main"), Use, "mitgcm", false, 15, ""},
		{with(user("alice"), "x"), Use, "secret", false, 21, "nobody but administrators may use it (policy.yaml:21)"},
		{with(user("bob"), "x"), Publish, "mitgcm", false, 19, "it is for user carol (policy.yaml:19)"},
		{user("alice", "ocean"), Use, "secret", false, 21, "nobody but administrators may use it (policy.yaml:21)"},
		{user("alice"), Use, "debug", true, 24, "in partition debug"},
		{job(user("alice"), "x", "main"), Use, "debug", false, 24, "everybody and partition debug"},
		{user("ops"), Use, "secret", true, 2, "administrators may do everything (policy.yaml:2)"},
		{from(user("ops"), node), Use, "secret", true, 2, ""},

		{user("carol"), Publish, "mitgcm", true, 19, "the rule is for user carol"},
		{user("carol"), Publish, "lammps", false, 8, "only builders and administrators"},
		{from(user("carol"), login), Publish, "mitgcm", false, 8, "published from the broker's host, and this came from 10.0.0.5"},
		{user("forge"), Publish, "mitgcm", false, 19, "it is for user carol"},
		{user("forge"), Publish, "lammps", true, 8, "builders may publish"},
		{Subject{UID: 4100, From: local}, Publish, "lammps", true, 8, "uid 4100 may"},
		{user("forge"), Publish, "stock", false, 0, "only administrators publish stock"},
		{user("alice"), Publish, "lammps", false, 8, ""},
		{user("forge"), Upload, "sha256:00", true, 8, "who may publish may upload"},
		{user("carol"), Upload, "sha256:00", true, 19, ""},
		{from(user("carol"), node), Upload, "sha256:00", false, 8, "10.0.7.9"},
		{user("alice"), Upload, "sha256:00", false, 0, "only those upload"},

		{user("forge"), Retire, "lammps", false, 0, "only administrators"},
		{user("carol"), Release, "mitgcm@1", false, 0, `may not release profile "mitgcm@1"`},
		{user("alice"), Inspect, "", false, 0, ""},
		{user("ops"), Retire, "lammps", true, 2, ""},
		{user("x", "wheel"), Quarantine, "lammps", true, 2, ""},
		{from(user("ops"), login), Retire, "lammps", true, 2, ""},
		{from(user("ops"), mapped), Retire, "lammps", true, 2, ""},
		{from(user("ops"), node), Retire, "lammps", false, 2, "administrators have their role from the broker's host or 10.0.0.0/24, and this one came from 10.0.7.9"},
		{root, Retire, "lammps", true, 0, ""},
		{from(root, login), Retire, "lammps", false, 0, "uid 0 is an administrator on the broker's host, and came from 10.0.0.5"},
		{from(root, node), Publish, "lammps", false, 0, "uid 0 is an administrator on the broker's host"},
		{from(root, login), Use, "secret", true, 0, ""},
		{Subject{UID: 64030, From: local}, Publish, "stock", true, 0, ""},
		{user(""), Publish, "lammps", false, 8, "uid 20000 may not"},
		{user("ops"), Retire, "", true, 2, ""},
		{user("alice"), "fly", "x", false, 0, "there is no such action, there are view, use, profile, publish"},
	} {
		a := example().Decide(Question{c.subject, c.action, c.object})
		if a.Allowed != c.allowed || a.Line != c.line || !strings.Contains(a.Reason, c.words) {
			t.Errorf("%s %s %q: %+v, want %v by line %d with %q", c.subject, c.action, c.object, a, c.allowed, c.line, c.words)
		}
	}
}

// Who may use a kernel may have own jobs on it profiled, unless rules of the kernel or of all say who.
func TestWhoProfiles(t *testing.T) {
	perf, nobody := []Rule{{Groups: []string{"perf"}, Accounts: []string{"climate"}, Line: 30}}, []Rule{}
	for name, c := range map[string]struct {
		all, own []Rule // of all profiles, of mitgcm
		subject  Subject
		object   string
		allowed  bool
		line     int
		sentence string
	}{
		"no rules, may use":           {nil, nil, job(user("alice", "ocean"), "x", "main"), "mitgcm@3", true, 15, `may profile jobs on "mitgcm@3": the rule is for group ocean or ice`},
		"no rules, may not use":       {nil, nil, job(user("alice"), "x", "main"), "mitgcm", false, 15, `may not profile jobs on "mitgcm": it is for`},
		"no rules, stock":             {nil, nil, job(user("alice"), "", ""), "stock", true, 0, "stock is for everybody"},
		"rules for all":               {perf, nil, job(user("alice"), "climate", ""), "lammps", false, 30, "it is for group perf and account climate"},
		"rules for all, stock":        {perf, nil, job(user("alice"), "climate", ""), "stock", false, 30, "it is for group perf"},
		"rules for all, a member":     {perf, nil, job(user("alice", "perf"), "climate", ""), "stock@1", true, 30, "the rule is for group perf"},
		"rules for all, no job yet":   {perf, nil, user("alice", "perf"), "stock", true, 30, "for a job with account climate"},
		"other accounts":              {perf, nil, with(user("alice", "perf"), "x"), "stock", false, 30, `the accounts "x"`},
		"own rules":                   {nobody, perf, job(user("alice", "perf"), "climate", ""), "mitgcm", true, 30, ""},
		"own rules, its twin":         {nobody, perf, job(user("alice", "perf"), "climate", ""), "mitgcm-instrumented@1", true, 30, ""},
		"own rules, another":          {nobody, perf, job(user("alice", "perf"), "climate", ""), "lammps", false, 10, "nobody but administrators may profile it"},
		"nobody, an administrator":    {nobody, nil, from(user("ops"), node), "stock", true, 2, "administrators may do everything"},
		"nobody, root by a job":       {nobody, nil, from(Subject{UID: 0, User: "root"}, login), "stock", true, 0, ""},
		"nobody of an open profile":   {nil, nobody, job(user("alice", "ocean"), "", ""), "mitgcm", false, 13, "nobody but administrators"},
		"use has no part in it":       {perf, nil, job(user("alice", "perf"), "climate", "x"), "debug", true, 30, ""},
		"publish has no part in it":   {nobody, nil, user("forge"), "lammps", false, 10, ""},
		"rules for all hold for twin": {perf, nil, job(user("alice"), "climate", ""), "stock-instrumented", false, 30, ""},
	} {
		p := example()
		p.Default.Profile = c.all
		own := p.Profiles["mitgcm"]
		own.Profile = c.own
		p.Profiles["mitgcm"] = own
		a := p.Decide(Question{c.subject, Profile, c.object})
		if a.Allowed != c.allowed || a.Line != c.line || !strings.Contains(a.Reason, c.sentence) {
			t.Errorf("%s: %+v, want %v by line %d with %q", name, a, c.allowed, c.line, c.sentence)
		}
	}
	p := DefaultPolicy(nil)
	if p.Default.Profile = perf; !p.NeedsUsers() || !slices.Equal(p.Accounts(), []string{"climate"}) || p.Restricted("mitgcm") {
		t.Error("rules for profiling need users and accounts, and restrict no kernel")
	}
}

// Stock is where every node goes back to: builders publish it only where its
// own rules for publishing name them. To name the profile is not enough.
func TestWhoPublishesStock(t *testing.T) {
	forge := []Rule{{Users: []string{"forge"}, Line: 25}}
	for name, c := range map[string]struct {
		stock    *Rights
		others   []Rule
		allowed  bool
		line     int
		sentence string
	}{
		"not named":                    {nil, nil, false, 0, "only administrators publish stock"},
		"not named, rules for all":     {nil, forge, false, 0, "only administrators publish stock"},
		"named, nothing said":          {&Rights{Line: 24}, nil, false, 24, "only administrators publish stock"},
		"named, rules for all":         {&Rights{Line: 24}, forge, false, 24, "only administrators publish stock"},
		"only its use":                 {&Rights{Line: 24, Use: forge}, nil, false, 24, "only administrators publish stock"},
		"nobody":                       {&Rights{Line: 24, Publish: []Rule{}}, forge, false, 24, "nobody but administrators"},
		"named, with somebody else":    {&Rights{Line: 24, Publish: []Rule{{Users: []string{"carol"}, Line: 25}}}, forge, false, 25, "it is for user carol"},
		"named, with who is a builder": {&Rights{Line: 24, Publish: forge}, nil, true, 25, "the rule is for user forge"},
	} {
		p := example()
		p.Default.Publish = c.others
		if c.stock != nil {
			p.Profiles["stock"] = *c.stock
		}
		for _, object := range []string{"stock", "stock@7"} {
			a := p.Decide(Question{user("forge"), Publish, object})
			if a.Allowed != c.allowed || a.Line != c.line || !strings.Contains(a.Reason, c.sentence) {
				t.Errorf("%s, %s: %+v, want %v by line %d with %q", name, object, a, c.allowed, c.line, c.sentence)
			}
		}
		if a := p.Decide(Question{user("ops"), Publish, "stock"}); !a.Allowed {
			t.Errorf("%s: an administrator: %+v", name, a)
		}
	}
}

func TestDefaultPolicy(t *testing.T) {
	p := DefaultPolicy([]uint32{0, 7})
	for _, c := range []struct {
		subject Subject
		action  Action
		allowed bool
	}{
		{user("alice"), Use, true}, {user("alice"), View, true}, {user("alice"), Publish, false}, {user("alice"), Upload, false},
		{user("alice"), Retire, false}, {user("alice"), Inspect, false},
		{Subject{UID: 7, From: local}, Publish, true}, {Subject{UID: 7, From: login}, Publish, false}, {Subject{UID: 0, From: local}, Retire, true},
		{Subject{UID: 0, From: login}, Upload, false}, {job(Subject{UID: 9}, "", ""), Use, true},
	} {
		if a := p.Decide(Question{c.subject, c.action, "mitgcm"}); a.Allowed != c.allowed {
			t.Errorf("%s from %s %s: %+v", c.subject, c.subject.From, c.action, a)
		}
	}
	if p.NeedsUsers() || p.NeedsAccounts() || p.Restricted("mitgcm") {
		t.Error("a policy without a file needs nothing")
	}
}

func TestNeeds(t *testing.T) {
	p := example()
	if !p.NeedsUsers() || !p.NeedsAccounts() {
		t.Error("the example names groups and accounts")
	}
	p.Default.Use = append(p.Default.Use, Rule{Accounts: []string{"ice", "climate"}})
	if got := p.Accounts(); !slices.Equal(got, []string{"climate", "ice"}) {
		t.Errorf("accounts %q", got)
	}
	p = example()
	for profile, want := range map[string]bool{"mitgcm": true, "secret": true, "debug": true, "lammps": false, "stock": false} {
		if p.Restricted(profile) != want {
			t.Errorf("%s: %v", profile, !want)
		}
	}
}

// Knowing more of somebody never takes a right away, and what is denied for
// want of knowledge of the job stays denied with any job.
func TestMoreIsNeverLess(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := example()
		s := Subject{UID: rapid.SampledFrom([]uint32{0, 4100, 20000, 64030}).Draw(t, "uid"),
			User:   rapid.SampledFrom([]string{"", "alice", "carol", "forge", "ops"}).Draw(t, "user"),
			From:   rapid.SampledFrom([]Place{local, login, node}).Draw(t, "from"),
			Groups: rapid.SliceOfN(rapid.SampledFrom([]string{"ocean", "wheel", "x"}), 0, 2).Draw(t, "groups")}
		action := rapid.SampledFrom(Actions).Draw(t, "action")
		object := rapid.SampledFrom([]string{"mitgcm", "secret", "debug", "lammps", "stock"}).Draw(t, "object")
		a := p.Decide(Question{s, action, object})
		if a.Reason == "" || a.Allowed && action == Retire && s.From == node {
			t.Fatalf("%+v", a)
		}
		more := s
		more.Groups = append([]string{"ocean"}, s.Groups...)
		if b := p.Decide(Question{more, action, object}); a.Allowed && !b.Allowed {
			t.Fatalf("%s in one group more: %+v, then %+v", s, a, b)
		}
		fewer := with(s, rapid.SliceOfN(rapid.SampledFrom([]string{"climate", "x"}), 0, 2).Draw(t, "accounts")...)
		if b := p.Decide(Question{fewer, action, object}); b.Allowed && !a.Allowed {
			t.Fatalf("%s: denied, and allowed with accounts %v: %+v", s, fewer.Accounts, b)
		}
		with := job(s, rapid.SampledFrom([]string{"", "climate"}).Draw(t, "account"), rapid.SampledFrom([]string{"main", "debug"}).Draw(t, "partition"))
		if b := p.Decide(Question{with, action, object}); b.Allowed && !a.Allowed {
			t.Fatalf("%s: denied, and allowed with a job: %+v", with, b)
		}
	})
}
