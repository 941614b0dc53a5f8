// SPDX-License-Identifier: Apache-2.0

package site

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
	"github.com/kernelbroker/kernelbroker/tests/support/memstore"
)

// saved writes a backup and returns its path.
func saved(t *testing.T, src Source) (string, Summary) {
	t.Helper()
	var out bytes.Buffer
	s, err := Write(t.Context(), &out, Header{Taken: noon, Revision: 7, Program: "test"}, src, quiet)
	if err != nil {
		t.Fatal(err)
	}
	return file(t, out.Bytes()), s
}

func file(t testing.TB, text []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "backup")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestBackupIsRestored(t *testing.T) {
	p := place(t, External)
	s := source(t, p)
	path, summary := saved(t, from(t, s))
	b, err := OpenBackup(t.Context(), path)
	if err != nil || b.Summary != summary || b.Records != 3*page+2 || b.Revision != 7 {
		t.Fatalf("%+v, %v; want %+v", b, err, summary)
	}
	defer b.Close()
	to := memstore.New()
	if err := Copy(t.Context(), b.Source(), Target{Place: p, Store: to}, quiet); err != nil {
		t.Fatal(err)
	}
	same(t, s, to)
	if err := Check(t.Context(), to, p); err != nil {
		t.Error(err)
	}

	// A store of a version before sites had names, into a new data folder.
	old := memstore.New()
	put(t, old, "jobs/1", "x")
	path, _ = saved(t, from(t, old))
	again, err := OpenBackup(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	fresh, to := place(t, Embedded), memstore.New()
	broken := &breaking{Store: to, after: 1, when: memstore.Before}
	if err := Copy(t.Context(), again.Source(), Target{Place: fresh, Store: broken}, quiet); !errors.Is(err, store.ErrUnavailable) {
		t.Fatal(err)
	}
	if err := Copy(t.Context(), again.Source(), Target{Place: fresh, Store: to}, quiet); err != nil {
		t.Fatal(err)
	}
	if id, err := Claim(t.Context(), to, fresh, noon); err != nil || len(id.ID) != 32 {
		t.Errorf("%+v, %v", id, err)
	}
}

// A backup that is not whole, or changed in a single place, is refused before anything is restored.
func TestDamagedBackups(t *testing.T) {
	s := memstore.New()
	for _, key := range []string{"jobs/1", "jobs/2", "nodes/n1"} {
		put(t, s, key, key+key)
	}
	path, _ := saved(t, from(t, s))
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	refused := func(what string, text []byte) {
		t.Helper()
		if b, err := OpenBackup(t.Context(), file(t, text)); err == nil {
			t.Errorf("%s is taken: %+v", what, b.Summary)
		}
	}
	for n := range whole {
		refused("a part", whole[:n])
		// The header of gzip has a time and a system that nothing depends on.
		if n >= 10 && n%2 == 0 {
			changed := bytes.Clone(whole)
			changed[n] ^= 1
			refused("a changed byte", changed)
		}
	}
	refused("something behind it", append(bytes.Clone(whole), 'x'))
	refused("two backups", append(bytes.Clone(whole), whole...))

	unpacked, err := gzip.NewReader(bytes.NewReader(whole))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(unpacked)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(text), "\n")
	for what, changed := range map[string][]string{
		"a record is missing":     {lines[0], lines[1], lines[3], lines[4]},
		"records are in disorder": {lines[0], lines[2], lines[1], lines[3], lines[4]},
		"a record is there twice": {lines[0], lines[1], lines[1], lines[2], lines[3], lines[4]},
		"a record is changed":     {lines[0], strings.Replace(lines[1], `"value":"a`, `"value":"b`, 1), lines[2], lines[3], lines[4]},
		"its number is wrong":     append(slices.Clone(lines[:4]), strings.Replace(lines[4], `"records":3`, `"records":4`, 1)),
		"its end is missing":      lines[:4],
		"the header is missing":   lines[1:],
		"a key has no name":       {lines[0], `{"key":"","value":""}` + "\n", lines[4]},
		"a later version":         append([]string{strings.Replace(lines[0], `"kernel_broker_backup":1`, `"kernel_broker_backup":2`, 1)}, lines[1:]...),
	} {
		if strings.Join(changed, "") == string(text) {
			t.Errorf("%s: nothing was changed", what)
		}
		var out bytes.Buffer
		w := gzip.NewWriter(&out)
		_, err := w.Write([]byte(strings.Join(changed, "")))
		if err := errors.Join(err, w.Close()); err != nil {
			t.Fatal(err)
		}
		refused(what, out.Bytes())
	}
}

// FuzzBackup reads arbitrary files: it ends, with all records or an error.
func FuzzBackup(f *testing.F) {
	f.Add([]byte(`{"kernel_broker_backup":1,"cluster":"hpc","taken":"2026-11-30T12:00:00Z","revision":1,"program":"x"}` + "\n"))
	f.Add([]byte("{}\n{}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		var out bytes.Buffer
		w := gzip.NewWriter(&out)
		_, err := w.Write(text)
		if err := errors.Join(err, w.Close()); err != nil {
			t.Fatal(err)
		}
		b, err := OpenBackup(t.Context(), file(t, out.Bytes()))
		if err != nil {
			return
		}
		n := 0
		for _, err := range b.Source().Records(t.Context()) {
			if n++; err != nil {
				t.Errorf("a checked backup gives %v", err)
			}
		}
		if n != b.Records {
			t.Errorf("%d records instead of %d", n, b.Records)
		}
	})
}
