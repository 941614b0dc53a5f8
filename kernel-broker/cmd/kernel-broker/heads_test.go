// SPDX-License-Identifier: Apache-2.0

package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/audit"
	"github.com/kernelbroker/kernelbroker/tests/support/memstore"
)

// A broker that begins to act has in its chain what another one, on a host of its own, had on disk when it ended. So the other's
// chain, written anew, does not go with it.
func TestAnotherHostsChainIsWitnessed(t *testing.T) {
	kept, all := memstore.New(), t.TempDir()
	open := func(host, dir string) *authorization {
		t.Helper()
		record, err := audit.Open(audit.Options{Dir: dir, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		r := &authorization{record: record, heads: kept, host: host, log: slog.New(slog.DiscardHandler)}
		if err := r.witness(t.Context()); err != nil {
			t.Fatal(err)
		}
		return r
	}
	act := func(r *authorization, what string) {
		t.Helper()
		if _, err := r.record.Append(audit.Entry{Kind: "test", Reason: what}, true); err != nil {
			t.Fatal(err)
		}
	}
	problems := func() (n int) {
		t.Helper()
		reports, err := audit.VerifyAll(all)
		if err != nil || len(reports) != 2 {
			t.Fatalf("%+v, %v", reports, err)
		}
		for _, report := range reports {
			n += len(report.Problems)
		}
		return n
	}
	one := open("ctl1", filepath.Join(all, "ctl1"))
	act(one, "acts")
	one.publishHead(t.Context())
	if err := one.record.Close(); err != nil {
		t.Fatal(err)
	}
	elsewhere := t.TempDir()
	two := open("ctl2", filepath.Join(elsewhere, "ctl2"))
	act(two, "acts")
	if err := two.record.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(all, "ctl2"), os.DirFS(filepath.Join(elsewhere, "ctl2"))); err != nil {
		t.Fatal(err)
	}
	if n := problems(); n != 0 {
		t.Errorf("intact chains have %d problems", n)
	}
	if err := os.RemoveAll(filepath.Join(all, "ctl1")); err != nil {
		t.Fatal(err)
	}
	forged := open("ctl1", filepath.Join(all, "ctl1"))
	act(forged, "did nothing")
	if err := forged.record.Close(); err != nil {
		t.Fatal(err)
	}
	if n := problems(); n != 1 {
		t.Errorf("a chain written anew has %d problems, want 1", n)
	}
}
