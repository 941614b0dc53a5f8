// SPDX-License-Identifier: Apache-2.0

package etcdstore_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store/etcdstore"
	"github.com/kernelbroker/kernelbroker/tests/support/etcdtest"
)

func examine(t *testing.T, s *etcdstore.Store) etcdstore.Findings {
	t.Helper()
	f, err := s.Examine(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestExamineEtcd(t *testing.T) {
	foreign := etcdtest.Start(t, etcdtest.Options{})
	for name, c := range map[string]struct {
		endpoint, version string
		quota             int64
	}{
		"external": {foreign.Endpoint, "3.4.", 2 << 30},
		"embedded": {embedded(t, t.TempDir()), "3.7.", 512 << 20},
	} {
		s := openCluster(t, c.endpoint, "a", 0)
		f := examine(t, s)
		if len(f.Members) != 1 || !strings.HasPrefix(f.Members[0].Version, c.version) || f.Quota != c.quota || len(f.Warnings) != 0 {
			t.Errorf("%s: %+v", name, f)
		}
		if got := s.Limits(); got != store.MostLimits {
			t.Errorf("%s: limits %+v", name, got)
		}
		if records, _ := list(t, s, ""); len(records) != 0 {
			t.Errorf("%s: it leaves %v", name, records)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// most commits as much as the limits say, and then has it conflict.
func most(t *testing.T, s store.Store, key string) {
	t.Helper()
	l := s.Limits()
	var many []store.Write
	for i := range l.Writes {
		many = append(many, put(fmt.Sprintf("%s/%03d", key, i), "v", 0))
	}
	big := []store.Write{put(key, strings.Repeat("x", l.Bytes-len(key)), 0)}
	for _, writes := range [][]store.Write{many, big} {
		commit(t, s, writes...)
		if _, err := s.Commit(t.Context(), writes...); !errors.Is(err, store.ErrConflict) {
			t.Errorf("%d writes again: %v", len(writes), err)
		}
	}
	_, err := s.Commit(t.Context(), append(many, put(key+"/more", "v", 0))...)
	wantError(t, err, store.ErrTooLarge)
}

// A broker keeps to what an etcd takes, also when that becomes less while it runs.
func TestSmallerLimits(t *testing.T) {
	server := etcdtest.Start(t, etcdtest.Options{Args: []string{"--max-txn-ops=40", "--max-request-bytes=600000", "--quota-backend-bytes=300000000"}})
	s := openCluster(t, server.Endpoint, "a", 0)
	closing(t, s)
	if f := examine(t, s); f.Quota != 300000000 {
		t.Errorf("the quota is %d", f.Quota)
	}
	if l := s.Limits(); l.Writes != 40 || l.Bytes > 600000 || l.Bytes < 590000 {
		t.Errorf("limits %+v", l)
	}
	most(t, s, "one")
	if err := s.Lead(t.Context(), claim("one", "here")); err != nil {
		t.Fatal(err)
	}
	if l := s.Limits(); l.Writes != 39 {
		t.Errorf("limits of one that acts %+v", l)
	}
	most(t, s, "two")

	server.Restart("--max-txn-ops=20", "--max-request-bytes=400000")
	writes(t, s, "again")
	for _, refused := range [][]store.Write{{put("big", strings.Repeat("x", 500000), 0)}, func() (many []store.Write) {
		for i := range 39 {
			many = append(many, put(fmt.Sprint("three/", i), "v", 0))
		}
		return many
	}()} {
		_, err := s.Commit(t.Context(), refused...)
		wantError(t, err, store.ErrTooLarge)
	}
	if l := s.Limits(); l.Writes != 19 || l.Bytes > 400000 || l.Bytes < 390000 {
		t.Errorf("limits after a restart with smaller ones %+v", l)
	}
	most(t, s, "four")

	for args, words := range map[string]string{
		"--max-txn-ops=8":            "etcd takes 8 operations in a transaction, and the broker needs 17: start its members with --max-txn-ops=128",
		"--max-request-bytes=200000": "start its members with --max-request-bytes=1572864",
	} {
		server.Restart(args)
		s := openCluster(t, server.Endpoint, "b", 0)
		if _, err := s.Examine(t.Context()); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v", args, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// What a user may not do is named, with the command that gives the right.
func TestRightsAreExamined(t *testing.T) {
	server := etcdtest.Start(t, etcdtest.Options{})
	open := func(user, password string) (*etcdstore.Store, error) {
		return etcdstore.Open(t.Context(), etcdstore.Config{Endpoints: []string{server.Endpoint}, Cluster: "a", User: user, Logger: quiet,
			Password: func() (string, error) { return password, nil }})
	}
	s, err := open("kb", "kb")
	if err != nil {
		t.Fatal(err)
	}
	if f := examine(t, s); len(f.Warnings) != 1 || !strings.Contains(f.Warnings[0], "asks nobody for a password: run etcdctl auth enable") {
		t.Errorf("without authentication: %q", f.Warnings)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	const own = "/kernel-broker/a/"
	server.Users(etcdtest.User{Name: "kb", Prefix: own, Permission: etcdtest.ReadWrite}, etcdtest.User{Name: "reader", Prefix: own, Permission: etcdtest.Read},
		etcdtest.User{Name: "writer", Prefix: own, Permission: etcdtest.Write}, etcdtest.User{Name: "other", Prefix: "/kernel-broker/b/", Permission: etcdtest.ReadWrite})
	for _, c := range []struct{ user, password, words string }{
		{"kb", "kb", ""},
		{"reader", "reader", `user "reader" may not write below "/kernel-broker/a/": give a role of this user the right: etcdctl role grant-permission ROLE --prefix=true readwrite /kernel-broker/a/`},
		{"writer", "writer", `user "writer" may not read below`},
		{"other", "other", `user "other" may not read below`},
		{"kb", "wrong", "etcdctl user passwd kb"},
		{"nobody", "nobody", `user "nobody" or the password is wrong`},
		{"", "", "it asks for a user: set etcd.user and etcd.password_file"},
	} {
		s, err := open(c.user, c.password)
		if err == nil {
			_, err = s.Examine(t.Context())
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
		if c.words == "" && err != nil || c.words != "" && (err == nil || !strings.Contains(err.Error(), c.words)) {
			t.Errorf("%s: %v, want %q", c.user, err, c.words)
		}
	}
}

// The user may be named by a certificate.
func TestUserOfACertificate(t *testing.T) {
	authority := etcdtest.NewAuthority(t)
	server := etcdtest.Start(t, etcdtest.Options{Authority: authority})
	server.Users(etcdtest.User{Name: "kb", Prefix: "/kernel-broker/a/", Permission: etcdtest.ReadWrite})
	for name, words := range map[string]string{"kb": "", "somebody": "the user that etcd.certificate names may not read"} {
		s, err := etcdstore.Open(t.Context(), etcdstore.Config{Endpoints: []string{server.Endpoint}, Cluster: "a", TLS: authority.As(t, name), Logger: quiet})
		if err == nil {
			_, err = s.Examine(t.Context())
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
		if words == "" && err != nil || words != "" && (err == nil || !strings.Contains(err.Error(), words)) {
			t.Errorf("%s: %v, want %q", name, err, words)
		}
	}
}

// Members that are away are named while another serves, and all of them where none does. Members of two clusters are none
// of one.
func TestMembersAreExamined(t *testing.T) {
	one := etcdtest.Start(t, etcdtest.Options{})
	open := func(endpoints ...string) *etcdstore.Store {
		t.Helper()
		s, err := etcdstore.Open(t.Context(), etcdstore.Config{Endpoints: endpoints, Cluster: "a", Timeout: time.Second, Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		closing(t, s)
		return s
	}
	s := open(one.Endpoint, "http://127.0.0.1:1")
	if f := examine(t, s); len(f.Warnings) != 1 || !strings.Contains(f.Warnings[0], "http://127.0.0.1:1: nothing listens there") {
		t.Errorf("with a member that is away: %+v", f)
	}
	two := embedded(t, t.TempDir())
	p := newProxy(t, two)
	if _, err := open(one.Endpoint, p.endpoint()).Examine(t.Context()); err == nil || !strings.Contains(err.Error(), "are of two clusters") {
		t.Errorf("of two clusters: %v", err)
	}
	one.Kill()
	if _, err := s.Examine(t.Context()); !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), one.Endpoint+": nothing listens there") {
		t.Errorf("without a member: %v", err)
	}
}

// A full etcd is no reason to end: it takes writes again when there is room.
func TestFullEtcdIsAWarning(t *testing.T) {
	server := etcdtest.Start(t, etcdtest.Options{Args: []string{"--quota-backend-bytes=2000000"}})
	s := openCluster(t, server.Endpoint, "a", 0)
	closing(t, s)
	var err error
	for end := time.Now().Add(30 * time.Second); err == nil && time.Now().Before(end); { // etcd measures its size now and then
		_, err = s.Commit(t.Context(), put("k", strings.Repeat("x", 400000), store.AnyRevision))
	}
	wantError(t, err, store.ErrFull)
	if f := examine(t, s); len(f.Warnings) != 1 || !strings.Contains(f.Warnings[0], "its database is full") {
		t.Errorf("%+v", f)
	}
	if l := s.Limits(); l != store.MostLimits {
		t.Errorf("limits %+v", l)
	}
}
