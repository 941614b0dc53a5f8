// SPDX-License-Identifier: Apache-2.0

package pgo

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/digest"
)

func counted(flow uint32, values ...int64) File {
	return File{Version: gcc12, Functions: []Function{{Ident: 7, Lines: 1, Flow: flow, Counters: []Counter{{Values: values}}}}}
}

func profileOf(files map[string]File) Profile { return Profile{Files: files, Runs: 1} }

func TestMerge(t *testing.T) {
	first := profileOf(map[string]File{"fs/a": counted(1, 1, 2), "fs/b": counted(1, 5)})
	second := profileOf(map[string]File{"fs/a": counted(1, 10, 0), "fs/c": counted(1, 6)})
	sum, err := first.Merge(second)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(sum.Names(), []string{"fs/a", "fs/b", "fs/c"}) || sum.Runs != 2 {
		t.Errorf("%v, %d runs", sum.Names(), sum.Runs)
	}
	if got := sum.Files["fs/a"].Functions[0].Counters[0].Values; !slices.Equal(got, []int64{11, 2}) {
		t.Errorf("the sum is %v", got)
	}
	if got := first.Files["fs/a"].Functions[0].Counters[0].Values; !slices.Equal(got, []int64{1, 2}) {
		t.Errorf("merging changed what was merged: %v", got)
	}
	other, err := second.Merge(first)
	if err != nil || other.Digest() != sum.Digest() {
		t.Errorf("the order matters: %v", err)
	}
}

func TestMergeRefuses(t *testing.T) {
	base := counted(1, 1, 2)
	value := base
	value.Functions = []Function{{Ident: 7, Lines: 1, Flow: 1, Counters: []Counter{{Kind: 5, Values: []int64{1}}}}}
	more := base
	more.Functions = append(slices.Clone(base.Functions), Function{Ident: 8})
	newer := base
	newer.Version++
	for name, c := range map[string]struct {
		one, two File
		want     string
		differ   bool
	}{
		"flow":         {base, counted(2, 1, 2), `profile of "fs/x": function 00000007: checksums 00000007-00000001-00000001 and 00000007-00000001-00000002`, true},
		"counters":     {base, counted(1, 1), "2 counters of kind 0 and 1 of kind 0", true},
		"functions":    {base, more, "1 functions and 2", true},
		"compiler":     {base, newer, `compiler versions "B22*" and "B22+"`, true},
		"values":       {value, value, "counters of kind 5 cannot be added", false},
		"overflow":     {counted(1, math.MaxInt64), counted(1, 1), "are too much", false},
		"kinds differ": {base, value, "2 counters of kind 0 and 1 of kind 5", true},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := profileOf(map[string]File{"fs/x": c.one}).Merge(profileOf(map[string]File{"fs/x": c.two}))
			if err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, ErrDiffer) != c.differ {
				t.Errorf("error is %v, want %q in it", err, c.want)
			}
		})
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	for name, data := range map[string][]byte{
		"o/fs/a.gcda": counted(1, 4).Encode(1, 4), "o/b.gcda": counted(1, 0).Encode(1, 4), "o/fs/a.gcno": nil,
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	profile, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	below, err := profile.Below("/o/")
	if err != nil || !slices.Equal(below.Names(), []string{"b", "fs/a"}) || !slices.Equal(below.Ran(), []string{"fs/a"}) {
		t.Errorf("%v, ran %v, %v", below.Names(), below.Ran(), err)
	}
	if _, err := profile.Below("/o/fs"); !errors.Is(err, ErrDiffer) || !strings.Contains(err.Error(), `"o/b"`) {
		t.Errorf("a file from elsewhere: %v", err)
	}
	if _, err := Load(t.TempDir()); err == nil || !strings.Contains(err.Error(), "no .gcda file in it") {
		t.Errorf("an empty folder: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "o/b.gcda"), []byte("half"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(dir); !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), "o/b.gcda") {
		t.Errorf("a broken file: %v", err)
	}
}

func TestLoadTakesTheCopyingAway(t *testing.T) {
	dir := filepath.Join(t.TempDir(), GuestFolder)
	put := func(folder, name string, file File) {
		t.Helper()
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, file.Encode(1, file.Max()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	put(dir, "fs/namei.gcda", counted(1, 1000, 20, 0))
	put(dir, "kernel/gcov/fs.gcda", counted(1, 1231))
	put(dir, "fs/read_write.gcda", counted(1, 7))
	put(dir+Copying, "fs/namei.gcda", counted(1, 900, 21, 3))
	put(dir+Copying, "kernel/gcov/fs.gcda", counted(1, 1231))
	put(dir+Copying, "lib/other.gcda", counted(1, 5))
	profile, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got := profile.Files["fs/namei"].Functions[0].Counters[0].Values; !slices.Equal(got, []int64{100, 0, 0}) {
		t.Errorf("what is left is %v", got)
	}
	if !slices.Equal(profile.Ran(), []string{"fs/namei", "fs/read_write"}) || len(profile.Files) != 3 {
		t.Errorf("ran: %v of %v", profile.Ran(), profile.Names())
	}
	put(dir+Copying, "fs/namei.gcda", counted(2, 900, 21, 3))
	if _, err := Load(dir); !errors.Is(err, ErrDiffer) || !strings.Contains(err.Error(), "fs/namei") {
		t.Errorf("the copying on another kernel: %v", err)
	}
}

// A file in which nothing ran must not change because another one ran more.
func TestDigests(t *testing.T) {
	few := profileOf(map[string]File{"ran": counted(1, 5), "cold": counted(1, 0)})
	many := profileOf(map[string]File{"ran": counted(1, 50), "cold": counted(1, 0)})
	one, two := few.Digests(), many.Digests()
	if one["cold"] != two["cold"] || one["ran"] == two["ran"] || few.Digest() == many.Digest() {
		t.Errorf("%v\n%v", one, two)
	}
	dir := filepath.Join(t.TempDir(), "p")
	if err := few.WriteFor(dir); err != nil {
		t.Fatal(err)
	}
	if digest, err := FolderDigest(dir); err != nil || digest != few.Digest() {
		t.Errorf("the folder's digest is %s, the profile's %s: %v", digest, few.Digest(), err)
	}
	if err := few.WriteFor(dir); err == nil {
		t.Error("a profile was written over another")
	}
}

func TestSwap(t *testing.T) {
	used := filepath.Join(t.TempDir(), "used")
	swap := func(files map[string]File) []string {
		t.Helper()
		profile := profileOf(files)
		var forgotten []string
		changed, err := Swap(profile.Encoded(), used, func(object string) error {
			forgotten = append(forgotten, object)
			return nil
		})
		if err != nil || !slices.Equal(changed, forgotten) {
			t.Fatalf("changed %v, forgot %v: %v", changed, forgotten, err)
		}
		if digest, err := FolderDigest(used); digest != profile.Digest() || err != nil {
			t.Errorf("the folder is not the profile after a swap: %v", err)
		}
		return changed
	}
	if got := swap(map[string]File{"fs/a": counted(1, 1), "mm/b": counted(1, 0)}); !slices.Equal(got, []string{"fs/a", "mm/b"}) {
		t.Errorf("first: %v", got)
	}
	if got := swap(map[string]File{"fs/a": counted(1, 1), "mm/b": counted(1, 0)}); len(got) != 0 {
		t.Errorf("the same again: %v", got)
	}
	if got := swap(map[string]File{"fs/a": counted(1, 2), "mm/b": counted(1, 0), "net/c": counted(1, 0)}); !slices.Equal(got, []string{"fs/a", "net/c"}) {
		t.Errorf("one changed and one new: %v", got)
	}
	if got := swap(map[string]File{"fs/a": counted(1, 2)}); !slices.Equal(got, []string{"mm/b", "net/c"}) {
		t.Errorf("two gone: %v", got)
	}
	stop := errors.New("disk full")
	before, _ := FolderDigest(used)
	if _, err := Swap(profileOf(map[string]File{"fs/a": counted(1, 3)}).Encoded(), used, func(string) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("error is %v", err)
	}
	if after, err := FolderDigest(used); after != before || err != nil {
		t.Errorf("the profile was changed though its object was not forgotten: %v", err)
	}
}

func TestJudge(t *testing.T) {
	plain := Sections{Text: 4_700_000, Unlikely: 60_000}
	good := Sections{Text: 500_000, Unlikely: 3_000_000, Hot: 300_000}
	for name, c := range map[string]struct {
		complaints Complaints
		with       Sections
		want       string
	}{
		"as tried by hand": {Complaints{Mismatched: []string{"a"}, Missing: make([]string, 6)}, good, ""},
		"ignored":          {Complaints{}, Sections{Text: 4_900_000, Unlikely: 70_000}, "1.4 % of the text and was 1.3 % without"},
		"another config":   {Complaints{Mismatched: slices.Repeat([]string{"f.c: g"}, 1263)}, good, "1263 functions do not match their profile, at most 60 may (f.c: g, f.c: g, f.c: g, f.c: g, f.c: g, ...)"},
		"no files":         {Complaints{Missing: slices.Repeat([]string{"fs/a"}, 26)}, good, "26 files have no profile, at most 25"},
		"nothing at all":   {Complaints{}, Sections{}, ".text.unlikely is 0.0 %"},
	} {
		t.Run(name, func(t *testing.T) {
			err := DefaultLimits.Judge(c.complaints, plain, c.with)
			if c.want == "" && err != nil || c.want != "" && (!errors.Is(err, ErrUnfit) || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("error is %v, want %q in it", err, c.want)
			}
		})
	}
}

func TestReadLogByObject(t *testing.T) {
	const log = `  CC      fs/one.o
/s/include/linux/x.h:4:2: warning: the control flow of function 'inlined' does not match its profile data (counter 'arcs') [-Wcoverage-mismatch]
/s/fs/one.c:9:1: warning: profile for function 'main' not found in profile data [-Wmissing-profile]
  AS      lib/two.o
  CC      lib/three.o
/s/lib/three.c:1:1: warning: '/p/lib#three.gcda' profile count data file not found [-Wmissing-profile]
/s/lib/three.c:7:1: warning: source locations for function 'f' have changed, the profile data may be out of date [-Wcoverage-mismatch]
/s/lib/three.c:8:1: warning: corrupted profile info: edge from 3 to 4 exceeds maximal count [-Wcoverage-mismatch]
`
	complaints, compiled, err := ReadLog(strings.NewReader(log))
	if err != nil || !slices.Equal(compiled, []string{"fs/one.o", "lib/three.o"}) {
		t.Errorf("compiled %v, %v", compiled, err)
	}
	want := Complaints{
		Mismatched: []string{"fs/one.o: inlined", "fs/one.o: main", "lib/three.o: profile corrupted"},
		Moved:      []string{"lib/three.o: f"},
		Missing:    []string{"lib/three.o"},
	}
	if !reflect.DeepEqual(complaints, want) {
		t.Errorf("%+v", complaints)
	}
	// Only one of the two is compiled again, and then fits.
	again := complaints.Again(Complaints{}, []string{"lib/three.o"})
	want = Complaints{Mismatched: want.Mismatched[:2], Moved: []string{}, Missing: []string{}}
	if !reflect.DeepEqual(again, want) {
		t.Errorf("%+v", again)
	}
}

func TestModes(t *testing.T) {
	if _, err := Mode("fast").Flags("/p", "/o"); err == nil {
		t.Error("an unknown mode has flags")
	}
}

// A few bytes of a file stand for a megabyte of counters, and an archive has room
// for many files.
func TestCountersOfManyFiles(t *testing.T) {
	dir := t.TempDir()
	zeros := header(tagFunction, 12, 1, 2, 3, tagCounters, 0xfff00000) // as many as one file may have
	for i := range mostCounters/maxZeroCounters + 1 {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%04d.gcda", i)), zeros, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, err := Load(dir)
	if !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), fmt.Sprintf("%04d.gcda", mostCounters/maxZeroCounters)) {
		t.Errorf("error is %v", err)
	}
}

// Digests of the files as they are written, by the object's name.
func (p Profile) Digests() map[string]string {
	digests := make(map[string]string, len(p.Files))
	for name, data := range p.Encoded() {
		digests[name] = digest.Of(data)
	}
	return digests
}

// Digest of the whole profile.
func (p Profile) Digest() string {
	digests := p.Digests()
	var text strings.Builder
	for _, name := range p.Names() {
		fmt.Fprintf(&text, "%s %s\n", digests[name], name)
	}
	return digest.Of([]byte(text.String()))
}
