// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/mtls"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/pki"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store/sealed"
	"github.com/kernelbroker/kernelbroker/tests/support/memstore"
)

// authorityFiles writes an authority as earlier versions kept it, and returns its certificate.
func authorityFiles(t *testing.T, dir string) string {
	t.Helper()
	o := pki.Options{Cluster: "hpc", Host: "ctl", Lifetime: time.Hour}
	var err error
	if o.Secrets, err = sealed.Open(t.Context(), memstore.New(), sealed.Options{Cluster: "hpc", File: filepath.Join(t.TempDir(), "key"), Begin: true}); err != nil {
		t.Fatal(err)
	}
	if _, err = pki.Found(t.Context(), o, ""); err != nil {
		t.Fatal(err)
	}
	all, err := o.Secrets.List(t.Context(), pki.AuthorityPrefix)
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "ca-0000.pem"), all[0].Text, 0o600); err != nil {
		t.Fatal(err)
	}
	list, err := mtls.ParseCertificates(all[0].Text)
	if err != nil {
		t.Fatal(err)
	}
	return string(mtls.EncodeCertificates(list))
}

// own is a broker with an authority of its own.
func (h *host) own() { h.tls = "{}" }

// A broker of an earlier version's data folder that is killed at any moment of its first start has the same authority in the
// end, and leaves its file.
func TestImportIsKilled(t *testing.T) {
	h := newHost(t)
	h.own()
	h.program() // builds it
	takes, parts := time.Duration(0), 0
	var public, key string
	appears := func(path *string) func(context.Context) {
		return func(ctx context.Context) {
			for _, err := os.Stat(*path); err != nil && ctx.Err() == nil; _, err = os.Stat(*path) {
				time.Sleep(time.Millisecond / 4)
			}
		}
	}
	for n := range kills {
		h.c.DataDir = t.TempDir()
		public, key = filepath.Join(h.c.DataDir, "ca.pem"), h.config().storeKeyFile()
		want := authorityFiles(t, filepath.Join(h.c.DataDir, "ca"))
		switch {
		case n == 0: // to see how long it takes
		case n%2 == 0:
			h.killed(takes, nil)
		default: // just after its first step
			h.killed(10*time.Millisecond, appears(&key))
		}
		if _, err := os.Stat(key); err == nil {
			if _, err := os.Stat(public); err != nil {
				parts++
			}
		}
		begun := time.Now()
		h.killed(time.Millisecond, appears(&public))
		takes = max(takes, time.Since(begun))
		if got, err := os.ReadFile(public); err != nil || string(got) != want {
			t.Fatalf("kill %d: it has the authority %s, %v; want %s", n, got, err, want)
		}
		if left, err := filepath.Glob(filepath.Join(h.c.DataDir, "ca", "*")); err != nil || len(left) != 1 {
			t.Errorf("the folder has %q, %v", left, err)
		}
	}
	t.Logf("%d of %d kills came between the key's file and the authority's; one start takes %v", parts, kills-1, takes)
}

// The keys of the authority are removed by a command, all but the newest, or all.
func TestDropAuthorities(t *testing.T) {
	h := newHost(t)
	h.must("is new", "store", "key")
	h.must("was there", "store", "key")
	kept, done := h.open()
	secrets, err := h.config().secrets(t.Context(), kept, true)
	if err != nil {
		t.Fatal(err)
	}
	o := pki.Options{Secrets: secrets, Cluster: "hpc", Host: "ctl", Lifetime: time.Hour}
	if _, err := pki.Found(t.Context(), o, ""); err != nil {
		t.Fatal(err)
	}
	a, err := pki.OpenAuthority(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	newest, err := a.Rotate(t.Context(), time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	done()
	h.must("1 of 2 keys", "store", "drop-authorities")
	kept, done = h.open()
	if secrets, err = h.config().secrets(t.Context(), kept, false); err != nil {
		t.Fatal(err)
	}
	o.Secrets = secrets
	if a, err = pki.OpenAuthority(t.Context(), o); err != nil || a.Fingerprint() != newest {
		t.Errorf("%v", err)
	}
	done()
	if err := os.Remove(h.config().storeKeyFile()); err != nil {
		t.Fatal(err)
	}
	kept, done = h.open()
	if _, err := h.config().keyed(t.Context(), kept, h.config().place()); err == nil || !strings.Contains(err.Error(), h.config().storeKeyFile()) {
		t.Errorf("without the key: %v", err)
	}
	done()
	h.must("1 of 1 keys", "store", "drop-authorities", "--all")
	kept, done = h.open()
	defer done()
	if _, err := h.config().secrets(t.Context(), kept, true); err != nil {
		t.Errorf("begun anew: %v", err)
	}
	if _, err := os.Stat(h.config().storeKeyFile()); err != nil {
		t.Error(err)
	}
}
