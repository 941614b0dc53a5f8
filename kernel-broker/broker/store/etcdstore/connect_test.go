// SPDX-License-Identifier: Apache-2.0

package etcdstore_test

import (
	"context"
	"crypto/tls"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store/etcdstore"
	"github.com/kernelbroker/kernelbroker/tests/support/etcdtest"
)

// writes waits until a commit succeeds.
func writes(t *testing.T, s store.Store, key string) {
	t.Helper()
	var err error
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if _, err = s.Commit(t.Context(), put(key, "v", store.AnyRevision)); err == nil {
			return
		}
	}
	t.Fatalf("key %q is not written: %v", key, err)
}

// A connection has the certificates of its time: a store goes on when a site has replaced authority and certificate.
func TestCertificatesAreReadForEachConnection(t *testing.T) {
	first, second := etcdtest.NewAuthority(t), etcdtest.NewAuthority(t)
	now := atomic.Pointer[tls.Config]{}
	now.Store(first.Client(t))
	server := etcdtest.Start(t, etcdtest.Options{Authority: first})
	config := etcdstore.Config{Endpoints: []string{server.Endpoint}, Cluster: "a", Logger: quiet, Timeout: time.Second,
		TLS: func() (*tls.Config, error) { return now.Load().Clone(), nil }}
	s, err := etcdstore.Open(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	closing(t, s)
	writes(t, s, "first")

	server.Trust(second)
	if _, err := s.Commit(t.Context(), put("refused", "v", store.AnyRevision)); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("with the certificate of before: %v", err)
	}
	now.Store(second.Client(t))
	writes(t, s, "second")
	wantAbsent(t, s, "refused")

	without := config
	without.TLS = func() (*tls.Config, error) { return &tls.Config{RootCAs: second.Pool()}, nil }
	if s, err := etcdstore.Open(t.Context(), without); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("without a certificate: %v, %v", s, err)
	}
}

// A store that is open goes on with a new password; one that cannot read it says so, and goes on when it can.
func TestPasswordIsReadAgain(t *testing.T) {
	server := etcdtest.Start(t, etcdtest.Options{})
	server.Users(etcdtest.User{Name: "kb", Prefix: "/kernel-broker/a/", Permission: etcdtest.ReadWrite})
	var password atomic.Pointer[string]
	is := func(text string) { password.Store(&text) }
	is("kb")
	unreadable := errors.New("not to be read")
	config := etcdstore.Config{Endpoints: []string{server.Endpoint}, Cluster: "a", User: "kb", Logger: quiet, Timeout: 2 * time.Second,
		Password: func() (string, error) {
			if text := *password.Load(); text != "" {
				return text, nil
			}
			return "", unreadable
		}}
	s, err := etcdstore.Open(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	closing(t, s)
	commit(t, s, put("k", "1", 0))
	change := func(to string) {
		t.Helper()
		if _, err := server.Client("root").UserChangePassword(context.Background(), "kb", to); err != nil {
			t.Fatal(err)
		}
	}
	is("")
	change("new")
	if _, err := s.Commit(t.Context(), put("k", "2", store.AnyRevision)); !errors.Is(err, unreadable) || !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("without the new password: %v", err)
	}
	is("new")
	commit(t, s, put("k", "3", store.AnyRevision))

	is("wrong")
	if s, err := etcdstore.Open(t.Context(), config); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("with a wrong password: %v, %v", s, err)
	}
}

// The namespace is below the prefix, and a user who has nothing else needs no more.
func TestPrefix(t *testing.T) {
	server := etcdtest.Start(t, etcdtest.Options{})
	open := func(prefix, user string) (*etcdstore.Store, error) {
		return etcdstore.Open(t.Context(), etcdstore.Config{Endpoints: []string{server.Endpoint}, Prefix: prefix, Cluster: "a", User: user, Logger: quiet,
			Timeout: 5 * time.Second, Password: func() (string, error) { return user, nil }})
	}
	server.Users(etcdtest.User{Name: "one", Prefix: "/sites/one/a/", Permission: etcdtest.ReadWrite})
	s, err := open("/sites/one", "one")
	if err != nil {
		t.Fatal(err)
	}
	closing(t, s)
	if err := s.Lead(t.Context(), claim("one", "here")); err != nil {
		t.Fatal(err)
	}
	commit(t, s, put("k", "1", 0))
	wantKeys(t, func() []store.Record { records, _ := list(t, s, "k"); return records }(), "k")
	if other, err := open("/sites/two", "one"); err == nil {
		t.Errorf("another prefix is open to this user: %v", other.Close())
	}
	// A member that was restarted knows no token of before.
	server.Restart()
	writes(t, s, "again")
	select {
	case <-s.Lost():
		t.Error("the lease is lost in a restart")
	default:
	}
	have, err := server.Client("root").Get(t.Context(), "/sites/one/a/k")
	if err != nil || len(have.Kvs) != 1 {
		t.Errorf("below the prefix is %v, %v", have, err)
	}
}
