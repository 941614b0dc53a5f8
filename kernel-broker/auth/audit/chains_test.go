// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// chain opens the chain of a broker below a folder.
func chain(t *testing.T, dir, name string) *Log {
	t.Helper()
	l, err := Open(Options{Dir: filepath.Join(dir, name), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func appendTo(t *testing.T, l *Log, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if _, err := l.Append(Entry{Kind: "test", Reason: text}, true); err != nil {
			t.Fatal(err)
		}
	}
}

// A broker that hangs keeps its own chain only. The next one begins its own, which knows the others', also the one from before
// there were several brokers.
func TestChainsWitnessEachOther(t *testing.T) {
	dir := t.TempDir()
	alone := chain(t, dir, ".")
	appendTo(t, alone, "alone")
	if err := alone.Close(); err != nil {
		t.Fatal(err)
	}
	hangs := chain(t, dir, "ctl1")
	appendTo(t, hangs, "one", "two", "three")
	next := chain(t, dir, "ctl2")
	if err := next.Witness(nil); err != nil {
		t.Fatal(err)
	}
	appendTo(t, next, "acts")
	appendTo(t, hangs, "wakes") // before it learns that another one acts

	chains, err := Chains(dir)
	if want := []string{".", "ctl1", "ctl2"}; err != nil || !slices.Equal(chains, want) {
		t.Errorf("chains %q, %v, want %q", chains, err, want)
	}
	problems := func() (all []string) {
		t.Helper()
		reports, err := VerifyAll(dir)
		if err != nil {
			t.Fatal(err)
		}
		for name, r := range reports {
			for _, p := range r.Problems {
				all = append(all, name+": "+p.String())
			}
		}
		return all
	}
	if found := problems(); len(found) > 0 {
		t.Errorf("intact chains: %q", found)
	}

	// Who can write the files and the head of a chain makes another one of them, which is whole by itself.
	if err := hangs.Close(); err != nil {
		t.Fatal(err)
	}
	forge := func() {
		t.Helper()
		if err := os.RemoveAll(filepath.Join(dir, "ctl1")); err != nil {
			t.Fatal(err)
		}
		forged := chain(t, dir, "ctl1")
		appendTo(t, forged, "one", "nothing", "three", "wakes")
		if err := forged.Close(); err != nil {
			t.Fatal(err)
		}
	}
	forge()
	if found := problems(); len(found) != 1 || !strings.HasPrefix(found[0], "ctl1: record 3 with digest") || !strings.Contains(found[0], `record 2 of the chain "ctl2"`) {
		t.Errorf("a forged chain: %q", found)
	}
	if err := os.RemoveAll(filepath.Join(dir, "ctl1")); err != nil {
		t.Fatal(err)
	}
	if found := problems(); len(found) != 1 || !strings.Contains(found[0], `record 2 has seen the chain "ctl1", which is gone`) {
		t.Errorf("a chain that is gone: %q", found)
	}
}

// A chain whose head cannot be read is named in the log, and keeps nobody from acting.
func TestUnreadableHeadIsNotWitnessed(t *testing.T) {
	dir := t.TempDir()
	appendTo(t, chain(t, dir, "ctl1"), "one")
	if err := os.WriteFile(filepath.Join(dir, "ctl1", headName), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	l, err := Open(Options{Dir: filepath.Join(dir, "ctl2"), Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := l.Witness(map[string]string{"ctl1": "x", "ctl3": "y"}); err != nil || !strings.Contains(log.String(), "chain=ctl1") || !strings.Contains(log.String(), "chain=ctl3") {
		t.Errorf("%v, %s", err, log.String())
	}
}

// Brokers on hosts of their own know each other's heads by records. Their folders, copied into one, are verified together.
func TestChainsOfOtherHosts(t *testing.T) {
	dir := t.TempDir()
	here, there := chain(t, dir, "ctl1/ctl1"), chain(t, dir, "ctl2/ctl2")
	appendTo(t, there, "one", "two")
	head, err := there.OnDisk()
	if err == nil {
		err = here.Witness(map[string]string{"ctl2": head.String(), "ctl1": head.String()})
	}
	if err != nil {
		t.Fatal(err)
	}
	copied := func(from *Log) string {
		t.Helper()
		if err := from.Close(); err != nil {
			t.Fatal(err)
		}
		both := t.TempDir()
		for _, name := range []string{"ctl1", "ctl2"} {
			if err := os.CopyFS(filepath.Join(both, name), os.DirFS(filepath.Join(dir, name, name))); err != nil {
				t.Fatal(err)
			}
		}
		return both
	}
	reports, err := VerifyAll(copied(here))
	if err != nil || len(reports["ctl1"].Problems)+len(reports["ctl2"].Problems) > 0 || reports["ctl1"].Records != 1 {
		t.Errorf("intact chains: %+v, %v", reports, err)
	}
	if err := errors.Join(there.Close(), os.RemoveAll(filepath.Join(dir, "ctl2"))); err != nil {
		t.Fatal(err)
	}
	forged := chain(t, dir, "ctl2/ctl2")
	appendTo(t, forged, "nothing", "two")
	reports, err = VerifyAll(copied(forged))
	if err != nil || len(reports["ctl2"].Problems) != 1 {
		t.Errorf("a forged chain: %+v, %v", reports, err)
	}
}
