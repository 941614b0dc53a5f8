// SPDX-License-Identifier: Apache-2.0

package build

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestRecover(t *testing.T) {
	obj := t.TempDir()
	end := time.Now()
	for path, ago := range map[string]time.Duration{
		"fs/whole.o": 300, "fs/.whole.o.cmd": 299,
		"fs/half.o": 100, "fs/.half.o.cmd": 4000, // compiled again, and killed on the way
		"fs/first.o": 100, // never finished
		"fs/late.o":  40, "fs/.late.o.cmd": 10,
		"fs/built-in.a": 200, "fs/.built-in.a.cmd": 200,
		"lib/lib.a": 200,
		".config":   900, "include/config/auto.conf": 800, "include/generated/x.h": 700,
		"scripts/tool": 600, "scripts/.tool.cmd": 599,
		"tools/linked": 5, "tools/objtool/libsubcmd.a": 650, "tools/objtool/late.a": 5,
		"fs/newest.o": 0, "fs/.newest.o.cmd": 0,
	} {
		file := filepath.Join(obj, path)
		write(t, file, path)
		when := end.Add(-ago * time.Second)
		if err := os.Chtimes(file, when, when); err != nil {
			t.Fatal(err)
		}
	}
	if err := removeUnfinished(obj); err != nil {
		t.Fatal(err)
	}
	var left []string
	err := filepath.WalkDir(obj, func(path string, entry fs.DirEntry, err error) error {
		if name := strings.TrimPrefix(path, obj+"/"); err == nil && !entry.IsDir() && !strings.HasSuffix(name, ".cmd") {
			left = append(left, name)
		}
		return err
	})
	want := []string{".config", "fs/built-in.a", "fs/whole.o", "include/config/auto.conf", "include/generated/x.h", "scripts/tool", "tools/objtool/libsubcmd.a"}
	if !slices.Equal(left, want) || err != nil {
		t.Errorf("left are %v, want %v, %v", left, want, err)
	}
	if err := removeUnfinished(filepath.Join(obj, "none")); err != nil {
		t.Errorf("a folder that was not begun: %v", err)
	}
}

func TestLeftOver(t *testing.T) {
	for name, c := range map[string]struct {
		mark string
		kept bool
	}{
		"killed":                     {bootID(), true},
		"before the machine went up": {"another", false},
		"by an older factory":        {"", false},
	} {
		t.Run(name, func(t *testing.T) {
			obj := filepath.Join(t.TempDir(), "objects")
			write(t, filepath.Join(obj, ".config"), "x")
			write(t, filepath.Join(obj, "a.h"), "x")
			old := time.Now().Add(-time.Hour)
			if err := os.Chtimes(filepath.Join(obj, "a.h"), old, old); err != nil {
				t.Fatal(err)
			}
			write(t, complaintsFile(obj), "{}")
			write(t, obj+".in-use", c.mark)
			if err := recoverObjects(obj, obj+".in-use"); err != nil {
				t.Fatal(err)
			}
			if exists(filepath.Join(obj, "a.h")) != c.kept || exists(complaintsFile(obj)) != c.kept {
				t.Errorf("want kept %v", c.kept)
			}
		})
	}
}

// What the compiler said in a build that was killed is not lost.
func TestComplaintsOfAKilledBuild(t *testing.T) {
	f := newFakeFactory(t)
	plan := f.profiled("")
	in := CompileInput{
		Variant: Optimised, Config: f.configured(plan, ConfigureInput{Variant: Optimised}),
		Profile: f.profile(map[string]int64{"fs/a": 5, "mm/b": 0}),
	}
	compile := func() Manifest {
		t.Helper()
		manifest, err := f.builder().Compile(t.Context(), plan, in, Watch{}, t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		return manifest
	}
	compile()
	obj, err := f.builder().objectFolder(plan, Optimised)
	if err != nil {
		t.Fatal(err)
	}
	write(t, saidFile(obj), "  CC      fs/a.o\nfs/a.c:1:2: warning: the control flow of function 'f' does not match its profile data (counter 'arcs') [-Wcoverage-mismatch]\n")
	if got := compile().Profile.Complaints.Mismatched; !slices.Equal(got, []string{"fs/a.o: f"}) {
		t.Errorf("complaints are %v", got)
	}
	if exists(saidFile(obj)) {
		t.Error("what was said will be looked through once more")
	}
}
