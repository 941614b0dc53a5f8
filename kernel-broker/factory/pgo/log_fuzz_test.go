// SPDX-License-Identifier: Apache-2.0

package pgo

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

// A build's log holds what compilers and scripts of a source tree print.
func FuzzReadLog(f *testing.F) {
	f.Add("  CC      fs/namei.o\nfs/namei.c:12:3: warning: profile for function 'path_openat' not found in profile data [-Wmissing-profile]\n" +
		"  CC [M]  a.o\n./x.h:1:1: warning: source locations for function 'f' have changed, the profile data may be out of date\n")
	f.Add("a.c:1:1: warning: corrupted profile info\nwarning: 'fs#a.gcda' profile count data file not found\n")
	f.Fuzz(func(t *testing.T, log string) {
		complaints, compiled, err := ReadLog(strings.NewReader(log))
		if err != nil {
			return
		}
		lines := strings.Count(log, "\n") + 1
		if all := len(complaints.Mismatched) + len(complaints.Moved) + len(complaints.Missing) + len(compiled); all > lines {
			t.Errorf("%d complaints and objects in %d lines", all, lines)
		}
		for _, list := range [][]string{complaints.Mismatched, complaints.Moved, complaints.Missing} {
			if !slices.IsSorted(list) || len(slices.Compact(slices.Clone(list))) != len(list) {
				t.Errorf("%q is not in order", list)
			}
		}
		// The same build again says the same of the same objects.
		if again := complaints.Again(complaints, compiled); !reflect.DeepEqual(again, complaints) {
			t.Errorf("%+v became %+v", complaints, again)
		}
	})
}

// A profile's names come from archives of nodes, and are paths of the builder's
// own objects in the end.
func FuzzNames(f *testing.F) {
	f.Add("o/fs/a", "o/b")
	f.Add("o/..#..#x", "o/a#b")
	f.Add("o/a/.", "o/.")
	f.Fuzz(func(t *testing.T, first, second string) {
		file := counted(1, 1)
		below, err := profileOf(map[string]File{first: file, second: file}).Below("/o")
		if err != nil {
			return
		}
		mangled := map[string]bool{}
		for _, name := range below.Names() {
			mangled[Mangled(name)] = true
			back, ok := object(Mangled(name))
			if !ok || back != name || !isObject(name) || strings.Contains(Mangled(name), "/") {
				t.Errorf("%q is %q in a folder, and %q again", name, Mangled(name), back)
			}
		}
		if len(mangled) != len(below.Files) {
			t.Errorf("%q have the same file", below.Names())
		}
	})
}
