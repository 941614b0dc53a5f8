// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"bytes"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/pgo"
	"github.com/kernelbroker/kernelbroker/tests/support/tartest"
)

// FuzzCounters is an archive that a node delivers, from its unpacking to the
// profile that GCC reads. Nothing may be made but files below the two folders,
// and a profile has to be read again as it was written, each name one of a file
// below the objects.
func FuzzCounters(f *testing.F) {
	for _, files := range []map[string]string{
		{below + "fs/a.gcda": counts(1, 1, 2), below + "b.gcda": counts(2, 0)},
		{below + "fs/a.gcda": counts(1, 5), "gcov.copying/build/objects/fs/a.gcda": counts(1, 2)},
		{below + "..#x.gcda": counts(1, 5)},
		{"gcov/../x": ""},
	} {
		f.Add(unzipped(f, files))
	}
	f.Fuzz(func(t *testing.T, archive []byte) {
		parent := t.TempDir()
		dir, path := filepath.Join(parent, "dir"), filepath.Join(parent, "archive")
		for _, err := range []error{os.Mkdir(dir, 0o755), os.WriteFile(path, tartest.Zip(tartest.FixChecksums(archive)), 0o644)} {
			if err != nil {
				t.Fatal(err)
			}
		}
		err := unpackCounters(t.Context(), path, dir)
		onlyCounters(t, parent)
		if err != nil {
			return
		}
		profile, err := pgo.Load(filepath.Join(dir, pgo.GuestFolder))
		if err == nil {
			profile, err = profile.Below("/build/objects")
		}
		written := filepath.Join(parent, "written")
		if err != nil || profile.WriteFor(written) != nil {
			return
		}
		back, err := pgo.ReadFolder(written)
		if err != nil {
			t.Fatalf("%q: %v", profile.Names(), err)
		}
		if names := slices.Sorted(maps.Keys(back)); !slices.Equal(names, profile.Names()) {
			t.Errorf("%q came back as %q", profile.Names(), names)
		}
		for name, text := range back {
			if object := filepath.Join("/objects", name); !strings.HasPrefix(object, "/objects/") || !bytes.Equal(text, profile.Encoded()[name]) {
				t.Errorf("%q is %q, or other counters", name, object)
			}
		}
	})
}

// Tar is content long before the checksum of all of it comes.
func TestCountersDamaged(t *testing.T) {
	whole := tartest.Zip(unzipped(t, map[string]string{below + "fs/a.gcda": counts(1, 1, 2)}))
	damaged := bytes.Clone(whole)
	damaged[len(damaged)-8] ^= 1 // of the checksum
	endless := tartest.Zip(append(unzipped(t, map[string]string{below + "a.gcda": ""}), make([]byte, 1<<20)...))
	for name, c := range map[string]struct {
		archive []byte
		says    string
	}{
		"whole":   {whole, ""},
		"damaged": {damaged, "checksum"},
		"cut":     {whole[:len(whole)-9], "EOF"},
		"endless": {endless, "behind its end"},
	} {
		path := filepath.Join(t.TempDir(), "archive")
		if err := os.WriteFile(path, c.archive, 0o644); err != nil {
			t.Fatal(err)
		}
		err := unpackCounters(t.Context(), path, t.TempDir())
		if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// onlyCounters looks for what does not belong beside and in the folder.
func onlyCounters(t *testing.T, parent string) {
	t.Helper()
	err := filepath.WalkDir(parent, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		within, err := filepath.Rel(parent, path)
		switch {
		case err != nil:
			return err
		case within == "." || within == "dir" || within == "archive":
		case !strings.HasPrefix(within+"/", "dir/gcov/") && !strings.HasPrefix(within+"/", "dir/gcov.copying/"):
			t.Errorf("%q was made", within)
		case !entry.IsDir() && !entry.Type().IsRegular():
			t.Errorf("%q is %v", within, entry.Type())
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
