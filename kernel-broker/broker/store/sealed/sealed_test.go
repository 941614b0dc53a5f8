// SPDX-License-Identifier: Apache-2.0

package sealed

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
	"github.com/kernelbroker/kernelbroker/tests/support/memstore"
)

func begun(t *testing.T) (*memstore.Store, Options, *Box) {
	t.Helper()
	kept, o := memstore.New(), Options{Cluster: "hpc", File: filepath.Join(t.TempDir(), "sub", "key"), Begin: true}
	b, err := Open(t.Context(), kept, o)
	if err != nil {
		t.Fatal(err)
	}
	return kept, o, b
}

// What is sealed is read by the same key, from the same record of the same cluster, and by nothing else.
func TestOnlyItsKeyAndRecordOpensASecret(t *testing.T) {
	kept, o, b := begun(t)
	if err := b.Add(t.Context(), Secret{"a/1", []byte("SECRET")}, Secret{"a/2", []byte("OTHER")}); err != nil {
		t.Fatal(err)
	}
	if err := b.Add(t.Context(), Secret{"a/3", nil}, Secret{"a/2", []byte("again")}); !errors.Is(err, store.ErrConflict) {
		t.Errorf("a second one: %v", err)
	}
	again, err := Open(t.Context(), kept, o)
	if err != nil {
		t.Fatal(err)
	}
	got, err := again.List(t.Context(), "a/")
	if err != nil || len(got) != 2 || got[0].Key != "a/1" || string(got[0].Text) != "SECRET" || string(got[1].Text) != "OTHER" {
		t.Fatalf("%q, %v", got, err)
	}
	one, err := kept.Get(t.Context(), "a/1")
	if err != nil || bytes.Contains(one.Value, []byte("SECRET")) {
		t.Errorf("%q, %v", one.Value, err)
	}
	put := func(key string, value []byte) {
		t.Helper()
		if _, err := kept.Commit(t.Context(), store.Write{Key: key, Value: value, Expect: store.AnyRevision}); err != nil {
			t.Fatal(err)
		}
	}
	damaged := bytes.Replace(one.Value, []byte(`"sealed":"`), []byte(`"sealed":"AAAA`), 1)
	for name, value := range map[string][]byte{"b/moved": one.Value, "c/damaged": damaged, "d/empty": []byte(`{"key":"` + b.key.id + `"}`), "e/text": []byte("x"), "f/another's": bytes.Replace(one.Value, []byte(b.key.id), []byte("0000000000000000"), 1)} {
		put(name, value)
		if _, err := again.List(t.Context(), name); !errors.Is(err, kb.ErrInvalid) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	o.Cluster = "other"
	foreign, err := Open(t.Context(), kept, o)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := foreign.List(t.Context(), "a/"); !errors.Is(err, kb.ErrInvalid) {
		t.Errorf("another cluster: %v", err)
	}
}

// A key file that is missing, another's, readable by others or damaged is an error that names it, and what helps.
func TestAKeyFileThatDoesNotFit(t *testing.T) {
	kept, o, _ := begun(t)
	if info, err := os.Stat(o.File); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", info, err)
	}
	good, err := os.ReadFile(o.File)
	if err != nil {
		t.Fatal(err)
	}
	fails := func(what string, is error, words ...string) {
		t.Helper()
		_, err := Open(t.Context(), kept, o)
		if !errors.Is(err, is) {
			t.Errorf("%s: %v", what, err)
			return
		}
		for _, w := range append(words, o.File) {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %v lacks %q", what, err, w)
			}
		}
	}
	if err := os.Chmod(o.File, 0o640); err != nil {
		t.Fatal(err)
	}
	fails("readable", kb.ErrDenied, "chmod 600")
	if err := os.Remove(o.File); err != nil {
		t.Fatal(err)
	}
	fails("missing", fs.ErrNotExist, "copy", "drop-authorities")
	for _, text := range []string{"", "x", strings.TrimSpace(string(good)) + "00"} {
		if err := os.WriteFile(o.File, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		fails("damaged", kb.ErrInvalid, "64 hexadecimal digits")
	}
	if err := os.Remove(o.File); err != nil {
		t.Fatal(err)
	}
	if err := MakeKey(o.File); err != nil {
		t.Fatal(err)
	}
	if err := MakeKey(o.File); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a second key in its place: %v", err)
	}
	fails("another key", kb.ErrFailedPrecondition, "copy", "drop-authorities")
}

// A broker that waits makes nothing; one that acts and dies between its two steps goes on with the file that it has made.
func TestOnlyTheActingBrokerBegins(t *testing.T) {
	kept, o := memstore.New(), Options{Cluster: "hpc", File: filepath.Join(t.TempDir(), "key")}
	if _, err := Open(t.Context(), kept, o); !errors.Is(err, kb.ErrNotFound) {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(o.File); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a broker that waits made a key: %v", err)
	}
	o.Begin = true
	kept.FailCommits(1, memstore.Before)
	kept.FailCommits(1, memstore.After)
	for i := range 3 {
		_, err := Open(t.Context(), kept, o)
		if (err == nil) != (i == 2) {
			t.Fatalf("try %d: %v", i, err)
		}
	}
	if id, err := KeyID(o.File); err != nil || len(id) != 16 {
		t.Errorf("%q, %v", id, err)
	}
}
