package fuzz

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// The targets of this repository, by the way they are written.
func TestFind(t *testing.T) {
	targets, err := Find("../..", []string{"kernel-broker", "tests"}, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []Target{{"kernel-broker/hostlist", "FuzzExpand"}, {"kernel-broker/rpc", "FuzzBoundary"}, {"tests/lab", "FuzzParseAnswer"}} {
		if !slices.Contains(targets, want) {
			t.Errorf("%v is not found", want)
		}
	}
	if !slices.IsSortedFunc(targets, func(a, b Target) int { return strings.Compare(a.String(), b.String()) }) {
		t.Error("packages are mixed")
	}
	one, err := Find("../..", []string{"kernel-broker"}, "hostlist.FuzzExpand")
	if err != nil || len(one) != 1 {
		t.Errorf("by name: %v, %v", one, err)
	}
}

func inputs(n, size int) (all []input) {
	for i := range n {
		all = append(all, input{fmt.Sprintf("%016x", i), bytes.Repeat([]byte{byte(i)}, size+i%7)})
	}
	return all
}

func TestCorpusIsBounded(t *testing.T) {
	for _, all := range [][]input{nil, inputs(3, 10), inputs(1000, 10), inputs(100, 10_000), inputs(2, mostBytes)} {
		kept := choose(all)
		size, largest := 0, 0
		for _, i := range kept {
			size, largest = size+len(i.text), max(largest, len(i.text))
		}
		if len(kept) > mostInputs || size > mostBytes {
			t.Errorf("of %d: %d inputs of %d bytes", len(all), len(kept), size)
		}
		for _, i := range all {
			if len(i.text) < largest && !slices.ContainsFunc(kept, func(k input) bool { return k.name == i.name }) {
				t.Errorf("an input of %d bytes is dropped, one of %d kept", len(i.text), largest)
			}
		}
	}
}

func TestArchives(t *testing.T) {
	all := choose(inputs(20, 100))
	first, err := pack(all)
	if err != nil {
		t.Fatal(err)
	}
	again, err := pack(all)
	if err != nil || !bytes.Equal(first, again) {
		t.Errorf("the same inputs give another archive (%v)", err)
	}
	back, err := unpack(first)
	if err != nil || !slices.EqualFunc(back, all, func(a, b input) bool { return a.name == b.name && bytes.Equal(a.text, b.text) }) {
		t.Errorf("%d of %d inputs came back, %v", len(back), len(all), err)
	}
	outside, err := pack([]input{{"../../x", nil}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := unpack(outside); err == nil {
		t.Error("a path leads out of the folder")
	}
	if _, err := unpack([]byte("none")); err == nil {
		t.Error("no archive is one")
	}
}

// A target that finds nothing, and one that does, of a module of its own.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module example\n\ngo 1.26.0\n")
	write("p/p.go", "package p\n")
	write("p/p_test.go", `package p

import "testing"

func FuzzGood(f *testing.F) {
	f.Add("x")
	f.Fuzz(func(t *testing.T, s string) {
		if len(s) > 3 && s[0] == 'a' {
			return
		}
	})
}

func FuzzWrong(f *testing.F) {
	f.Add("x")
	f.Fuzz(func(t *testing.T, s string) {
		if s != "x" {
			t.Fatal("found it")
		}
	})
}
`)
	o := Options{Root: dir, Corpus: filepath.Join(dir, "corpus"), Work: filepath.Join(dir, "work"), Time: 2 * time.Second, Go: "go", Log: &bytes.Buffer{}}
	if err := os.MkdirAll(o.Work, 0o755); err != nil {
		t.Fatal(err)
	}
	targets, err := Find(dir, []string{"p"}, "")
	if err != nil {
		t.Fatal(err)
	}
	results, err := Run(t.Context(), o, targets)
	if err != nil || len(results) != 2 {
		t.Fatal(results, err)
	}
	good, wrong := results[0], results[1]
	if good.Failed != "" || good.Execs == 0 {
		t.Errorf("%+v", good)
	}
	if good.Kept > 0 {
		if _, err := os.Stat(filepath.Join(o.Corpus, "p", "FuzzGood.tar.gz")); err != nil {
			t.Error(err)
		}
	}
	if !strings.Contains(wrong.Failed, "found it") || !strings.HasPrefix(wrong.Input, "p/testdata/fuzz/FuzzWrong/") {
		t.Errorf("%+v", wrong)
	}
	if _, err := os.Stat(filepath.Join(dir, wrong.Input)); err != nil {
		t.Error(err)
	}
	var table bytes.Buffer
	if failed := (Report{Results: results}).Table(&table); failed != 1 || !strings.Contains(table.String(), "FAILED p/testdata") {
		t.Errorf("%d failed:\n%s", failed, table.String())
	}
}
