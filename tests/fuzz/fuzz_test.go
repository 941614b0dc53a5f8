package fuzz

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// The targets of this repository, by the way they are written.
func TestFind(t *testing.T) {
	targets, err := Find("../..", "kernel-broker", "slurm-plugin", "tests")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"kernel-broker/hostlist.FuzzExpand", "kernel-broker/rpc.FuzzBoundary", "tests/lab.FuzzParseAnswer", "slurm-plugin.snapshot"} {
		if !slices.ContainsFunc(targets, func(t Target) bool { return t.String() == want }) {
			t.Errorf("%s is not found", want)
		}
	}
	if !slices.IsSortedFunc(targets, func(a, b Target) int { return strings.Compare(a.String(), b.String()) }) {
		t.Error("packages are mixed")
	}
	chosen := Choose(targets, []string{"tests/lab.", "hostlist.FuzzExpand", "FuzzExpand"})
	if len(chosen) < 3 || chosen[0].Package != "tests/lab" || chosen[len(chosen)-1].Name != "FuzzExpand" {
		t.Errorf("by words: %v", chosen)
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
	// So written, they are none of this repository's own.
	write("p/p_test.go", strings.ReplaceAll(`package p

import (
	"flag"
	"testing"
)

FUNC FuzzGood(f *testing.F) {
	f.Add("x")
	f.Fuzz(func(t *testing.T, s string) {
		if len(s) > 3 && s[0] == 'a' {
			return
		}
	})
}

// Only the process that fuzzes sees it, as one that gets no processor.
FUNC FuzzUnsure(f *testing.F) {
	f.Add("x")
	f.Fuzz(func(t *testing.T, s string) {
		if s != "x" && flag.Lookup("test.fuzzworker").Value.String() == "true" {
			t.Fatal("not again")
		}
	})
}

FUNC FuzzWrong(f *testing.F) {
	f.Add("x")
	f.Fuzz(func(t *testing.T, s string) {
		if s != "x" {
			t.Fatal("found it")
		}
	})
}
`, "FUNC", "func"))
	o := Options{
		Root: dir, Corpus: filepath.Join(dir, "corpus"), Work: filepath.Join(dir, "work"),
		// In a second a busy machine may not have started the processes that fuzz.
		Time: 5 * time.Second, Missing: true, AtOnce: 2, Processors: 1, Go: "go", Log: &bytes.Buffer{},
	}
	if err := os.MkdirAll(o.Work, 0o755); err != nil {
		t.Fatal(err)
	}
	targets, err := Find(dir, "p")
	if err != nil {
		t.Fatal(err)
	}
	codes, err := Codes(t.Context(), dir, o.Go, targets)
	if err != nil {
		t.Fatal(err)
	}
	results, err := Run(t.Context(), o, targets, codes)
	if err != nil || len(results) != 3 {
		t.Fatal(results, err)
	}
	slices.SortFunc(results, func(a, b Result) int { return strings.Compare(a.Name, b.Name) })
	good, unsure, wrong := results[0], results[1], results[2]
	if good.Seconds < o.Time.Seconds() {
		t.Errorf("it has not had its %v: %+v", o.Time, good)
	}
	if good.Failed != "" || good.Execs == 0 || good.Processor == 0 {
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
	if unsure.Failed != "" || !strings.Contains(unsure.Broke, "not again") || unsure.Input != "" || unsure.Kept == 0 {
		t.Errorf("%+v", unsure)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "p/testdata/fuzz/FuzzUnsure/*")); err != nil || len(left) > 0 {
		t.Errorf("an input that passes is kept as one that fails: %v, %v", left, err)
	}
	var table bytes.Buffer
	if failed := (Report{Results: results}).Table(&table); failed != 1 || !strings.Contains(table.String(), "FAILED p/testdata") {
		t.Errorf("%d failed:\n%s", failed, table.String())
	}
	ledger, err := o.Ledger()
	if err != nil {
		t.Fatal(err)
	}
	if e := ledger[good.String()]; e.Execs != good.Execs || e.Code != codes[good.String()] || e.Runs == 0 || e.Findings != nil {
		t.Errorf("%+v of %+v", e, good)
	}
	if e := ledger[wrong.String()]; !slices.Equal(e.Findings, []string{wrong.Input}) {
		t.Errorf("%+v of %+v", e, wrong)
	}

	// What has had enough does not run again, until its code is another.
	for name, e := range ledger {
		e.Seconds, e.Processor = o.Time.Seconds(), o.Time.Seconds()
		ledger[name] = e
	}
	if err := ledger.Write(filepath.Join(o.Corpus, ledgerFile)); err != nil {
		t.Fatal(err)
	}
	if results, err = Run(t.Context(), o, targets, codes); err != nil || len(results) != 0 {
		t.Errorf("%v, %v", results, err)
	}
	write("p/p.go", "package p\n\nconst another = 1\n")
	changed, err := Codes(t.Context(), dir, o.Go, targets)
	if err != nil || changed[good.String()] == codes[good.String()] {
		t.Errorf("%v, then %v, %v", codes, changed, err)
	}
	write("p/other_test.go", "package p\n")
	if again, err := Codes(t.Context(), dir, o.Go, targets); err != nil || !maps.Equal(again, changed) {
		t.Errorf("a test of something else counts: %v, then %v, %v", changed, again, err)
	}
}

// Others write to the ledger while a long run goes on.
func TestLedgerOfTwoRuns(t *testing.T) {
	path := filepath.Join(t.TempDir(), "corpus", ledgerFile)
	var both sync.WaitGroup
	for _, name := range []string{"FuzzA", "FuzzB"} {
		both.Go(func() {
			for range 20 {
				r := Result{Target: Target{Package: "p", Name: name}, Execs: 1}
				if _, err := update(path, func(l Ledger) { l.add(r, "a", "c", time.Unix(0, 0)) }); err != nil {
					t.Error(err)
				}
			}
		})
	}
	both.Wait()
	l, err := ReadLedger(path)
	if err != nil || l["p.FuzzA"].Runs != 20 || l["p.FuzzB"].Runs != 20 {
		t.Errorf("%+v, %v", l, err)
	}
}

// By a processor's clock no more counts of many at once than has passed, and of a
// busy one no more than it gave.
func TestTimeThatCounts(t *testing.T) {
	target := Target{Package: "p", Name: "FuzzX"}
	for name, c := range map[string]struct {
		had                Entry
		ofDay, ofProcessor time.Duration
	}{
		"many processors": {had: Entry{Code: "a", Seconds: 60, Processor: 480}, ofDay: 9 * time.Minute, ofProcessor: 9 * time.Minute},
		"a busy one":      {had: Entry{Code: "a", Seconds: 600, Processor: 60}, ofDay: 0, ofProcessor: 9 * time.Minute},
	} {
		l := Ledger{"p.FuzzX": c.had}
		if left := l.Missing(target, "a", 10*time.Minute, Passed); left != c.ofDay {
			t.Errorf("%s: %v missing", name, left)
		}
		if left := l.Missing(target, "a", 10*time.Minute, Processor); left != c.ofProcessor {
			t.Errorf("%s: %v of a processor missing", name, left)
		}
	}
}

// How long nothing new was found goes on from run to run.
func TestQuiet(t *testing.T) {
	target := Target{Package: "p", Name: "FuzzX"}
	l := Ledger{}
	for _, c := range []struct {
		one  Result
		want float64
	}{
		{Result{Seconds: 300, New: 5, Quiet: 100}, 100},
		{Result{Seconds: 300, Quiet: 300}, 400},
		{Result{Seconds: 300, New: 1, Quiet: 20}, 20},
	} {
		c.one.Target = target
		l.add(c.one, "a", "c1", time.Now())
		if got := l["p.FuzzX"].Quiet; got != c.want {
			t.Errorf("%+v: quiet for %v", c.one, got)
		}
	}
}

// A busy machine gives a target the less of a second the less it needs, if it is
// started anew for each.
func TestTimeThatPasses(t *testing.T) {
	for _, c := range []struct {
		need               time.Duration
		seconds, processor float64
		want               time.Duration
	}{
		{10 * time.Minute, 0, 0, slice},
		{time.Minute, 0, 0, time.Minute},
		{time.Minute, 60, 30, 2 * time.Minute},
		{time.Minute, 60, 1, slice},
		{3 * time.Second, 60, 6, 30 * time.Second},
		{3 * time.Second, 60, 60, shortest},
		{time.Minute, 60, 240, time.Minute},
	} {
		if got := Processor.passing(c.need, Result{Seconds: c.seconds, Processor: c.processor}); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
	if got := Passed.passing(time.Minute, Result{Seconds: 60, Processor: 1}); got != time.Minute {
		t.Errorf("by the time of the day it is %v", got)
	}
}

func TestOrder(t *testing.T) {
	name := func(path string) Target { return Target{Package: path, Name: "FuzzX"} }
	inner, open, wide, had := name("kernel-broker/ca"), name("kernel-broker/hook"), name("kernel-broker/rpc"), name("kernel-broker/munge")
	changed := name("kernel-broker/credential")
	all := []Target{had, changed, inner, open, wide}
	codes := map[string]string{}
	for _, t := range all {
		codes[t.String()] = "now"
	}
	ledger := Ledger{
		had.String():     {Code: "now", Seconds: 600, Processor: 600},
		changed.String(): {Code: "then", Seconds: 600, Processor: 600},
		open.String():    {Code: "now", Seconds: 600, Processor: 20},
	}
	if got, want := Order(all, ledger, codes, 10*time.Minute, Processor), []Target{wide, open, inner, changed, had}; !slices.Equal(got, want) {
		t.Errorf("%v, not %v", got, want)
	}
	for _, folder := range exposed {
		if _, err := os.Stat(filepath.Join("../..", folder)); err != nil {
			t.Error(err)
		}
	}
}

// Runs add up while the code is the same; what was before is not lost.
func TestLedger(t *testing.T) {
	target := Target{Package: "p", Name: "FuzzX"}
	targets, codes := []Target{target}, map[string]string{"p.FuzzX": "b"}
	path := filepath.Join(t.TempDir(), "ledger.json")
	l, err := ReadLedger(path)
	if err != nil {
		t.Fatal(err)
	}
	when := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	l.add(Result{Target: target, Seconds: 700, Processor: 20, Execs: 5, New: 1, Failed: "x", Input: "p/testdata/1"}, "a", "c1", when)
	l.add(Result{Target: target, Seconds: 100, Processor: 90.04, Execs: 10, New: 2, Kept: 3}, "b", "c2", when)
	l.add(Result{Target: target, Seconds: 60, Processor: 30.02, Execs: 7, New: 0, Kept: 4, Failed: "x", Input: "p/testdata/1"}, "b", "c3", when)
	if err := l.Write(path); err != nil {
		t.Fatal(err)
	}
	if l, err = ReadLedger(path); err != nil {
		t.Fatal(err)
	}
	want := Entry{
		Code: "b", Commit: "c3", Last: "2030-01-02", Runs: 2, Seconds: 160, Processor: 120, Execs: 17, New: 2, Kept: 4,
		Quiet: 60, EarlierSeconds: 700, EarlierProcessor: 20, EarlierExecs: 5, Findings: []string{"p/testdata/1"},
	}
	if got := l["p.FuzzX"]; !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, not %+v", got, want)
	}
	for code, left := range map[string]time.Duration{"a": 10 * time.Minute, "b": 8 * time.Minute} {
		if got := l.Missing(target, code, 10*time.Minute, Processor); got != left {
			t.Errorf("code %s: %v missing, not %v", code, got, left)
		}
	}
	if got := l.Missing(target, "b", time.Minute, Processor); got != 0 {
		t.Errorf("%v missing of less than it had", got)
	}
	for wanted, words := range map[time.Duration][2]string{
		time.Minute:       {"enough", "1 of 1 targets ran for 1m0s with their code as it is, 1 of them"},
		2 * time.Minute:   {"enough", "1 of 1 targets ran for 2m0s with their code as it is, 1 of them"},
		140 * time.Second: {"20 s missing", "1 of 1 targets ran for 2m20s with their code as it is, 0 of them on a processor for as long; 1 with"},
		10 * time.Minute:  {"480 s missing", "0 of 1 targets ran for 10m0s with their code as it is, 0 of them on a processor for as long; 0 with"},
	} {
		var table bytes.Buffer
		l.Table(&table, targets, codes, wanted, Processor)
		for _, word := range words {
			if !strings.Contains(table.String(), word) {
				t.Errorf("not %q in\n%s", word, table.String())
			}
		}
	}
	var table bytes.Buffer
	l.Table(&table, targets, map[string]string{"p.FuzzX": "c"}, time.Minute, Passed)
	if !strings.Contains(table.String(), "0 of 1 targets") || !strings.Contains(table.String(), "its code has changed") {
		t.Errorf("of other code:\n%s", table.String())
	}
}
