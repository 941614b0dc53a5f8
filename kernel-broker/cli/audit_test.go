// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/audit"
)

// The chains of several brokers are verified together, and a head is of one of them.
func TestAuditOfSeveralBrokers(t *testing.T) {
	f, dir := newFixture(t), t.TempDir()
	for _, broker := range []string{"ctl1", "ctl2"} {
		l, err := audit.Open(audit.Options{Dir: filepath.Join(dir, broker), Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Witness(nil); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Append(audit.Entry{Kind: "test"}, true); err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	f.must(0, "the audit log is intact, in 2 chains", "audit", "verify", dir)
	f.must(0, "the audit log is intact", "audit", "verify", filepath.Join(dir, "ctl1"))
	f.must(2, "name the folder", "audit", "verify", dir, "--until", "1:"+strings.Repeat("0", 64))
	if err := os.RemoveAll(filepath.Join(dir, "ctl1")); err != nil {
		t.Fatal(err)
	}
	if out := f.must(1, "is damaged (1 problem)", "audit", "verify", dir); !strings.Contains(out, `the chain "ctl1", which is gone`) {
		t.Errorf("a chain that is gone: %s", out)
	}
}
