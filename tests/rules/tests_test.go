// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kernelbroker/kernelbroker/tests/support/slurmroot"
)

// A promise of docs/security.md is worth the test that it names. Each row of its
// table of attempts names one at least, and whatever test any page names is
// there: the function, in the package that the page says, and the subtest.

const (
	security = "docs/security.md"
	attacks  = "| attack |"
	matrix   = "docs/ops/slurm-matrix.md"
)

// outcome is what the matrix says of a version: "differs (1)" has its note below.
var outcome = regexp.MustCompile(`^((passed|not run)( \([1-9]\d*\))?|(differs|fails) \([1-9]\d*\))$`)

// outcomes of a row, by version. A row that passed alike on all says so once.
func outcomes(cell string) (all []string, complete bool) {
	if cell == "passed" {
		return []string{cell}, true
	}
	parts := strings.Split(cell, ", ")
	for i, version := range slurmroot.Versions {
		if i >= len(parts) || !strings.HasPrefix(parts[i], version+" ") {
			return nil, false
		}
		all = append(all, strings.TrimPrefix(parts[i], version+" "))
	}
	return all, len(parts) == len(slurmroot.Versions)
}

// goTests are the test functions, fuzz targets and benchmarks of a package's
// folder, with the strings in each: names of subtests are among them.
type goTests map[string]map[string][]string

var testName = regexp.MustCompile(`^(Test|Fuzz|Benchmark)[A-Z]\w*$`)

func allTests(t *testing.T) goTests {
	t.Helper()
	all := goTests{}
	for _, name := range files(t, "_test.go") {
		file, err := parser.ParseFile(token.NewFileSet(), name, read(t, name), parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		dir := path.Dir(name)
		if all[dir] == nil {
			all[dir] = map[string][]string{}
		}
		for _, d := range file.Decls {
			if f, is := d.(*ast.FuncDecl); is && f.Recv == nil && testName.MatchString(f.Name.Name) {
				all[dir][f.Name.Name] = literals(f.Body)
			}
		}
	}
	return all
}

func literals(body ast.Node) (texts []string) {
	ast.Inspect(body, func(n ast.Node) bool {
		if l, is := n.(*ast.BasicLit); is && l.Kind == token.STRING {
			if text, err := strconv.Unquote(l.Value); err == nil {
				texts = append(texts, text)
			}
		}
		return true
	})
	return texts
}

// find returns what is wrong with a name like TestTrustNodes/tokens, nil if
// nothing is. In is the end of the folder where the test has to be; empty for
// any.
func (all goTests) find(in, name string) error {
	function, sub, _ := strings.Cut(name, "/")
	sub, _, _ = strings.Cut(sub, "/") // deeper ones are made as the test goes
	var found []string
	for dir, tests := range all {
		texts, is := tests[function]
		if is && ends(dir, in) {
			found = append(found, function)
			found = append(found, texts...)
			if sub == "" || slices.Contains(found, unwritten(sub)) || slices.Contains(found, sub) {
				return nil
			}
		}
	}
	if found != nil {
		return fmt.Errorf("%s has no subtest %q", function, sub)
	}
	if in != "" {
		return fmt.Errorf("no %s in a package %s", function, in)
	}
	return fmt.Errorf("no %s", function)
}

// ends reports whether a folder is the one that a page means by its last
// elements: kernelbroker stands for the domain's own.
func ends(dir, in string) bool {
	if in == "kernelbroker" {
		in = "kernel-broker"
	}
	return in == "" || dir == in || strings.HasSuffix(dir, "/"+in)
}

// unwritten takes back how the testing package writes a subtest's name.
func unwritten(sub string) string { return strings.ReplaceAll(sub, "_", " ") }

// mention is a test that a text names.
type mention struct{ in, name string }

var (
	// Names in back quotes, one after another, and the parentheses between.
	word = regexp.MustCompile("`([^`]+)`|([()])")
	// What may stand before the parentheses in which its tests are named.
	folder = regexp.MustCompile(`^[a-z][a-z0-9/-]*$`)
)

// mentions reads "`rpc` (`TestA`, `TestB/c`)", "`TestA/b`, `.../c`".
func mentions(text string) (all []mention) {
	last, in, function := "", "", ""
	for _, m := range word.FindAllStringSubmatch(text, -1) {
		quoted := m[1]
		name, sub, has := strings.Cut(quoted, "/")
		switch {
		case m[2] == "(":
			in = last
		case m[2] == ")":
			in = ""
		case name == "..." && has && function != "":
			all = append(all, mention{in, function + "/" + sub})
		case testName.MatchString(name):
			function = name
			all = append(all, mention{in, quoted})
		}
		last = ""
		if folder.MatchString(quoted) {
			last = quoted
		}
	}
	return all
}

func TestPagesNameTestsThatAre(t *testing.T) {
	all := allTests(t)
	seen := 0
	for _, name := range files(t, ".md") {
		text := string(read(t, name))
		for number, line := range strings.Split(text, "\n") {
			for _, m := range mentions(line) {
				seen++
				if err := all.find(m.in, m.name); err != nil {
					t.Errorf("%s:%d: %v", name, number+1, err)
				}
			}
		}
	}
	if seen == 0 {
		t.Error("no page names a test")
	}
}

func TestEveryAttackHasItsTest(t *testing.T) {
	tables := strings.Split(string(read(t, security)), attacks)[1:]
	if len(tables) == 0 {
		t.Fatalf("%s has no table that begins with %q", security, attacks)
	}
	for _, table := range tables {
		table, _, _ = strings.Cut(table, "\n\n")
		for _, row := range strings.Split(table, "\n")[2:] {
			cells := strings.Split(strings.Trim(row, "| "), "|")
			if shown := cells[len(cells)-1]; len(cells) != 3 || len(mentions(shown)) == 0 {
				t.Errorf("%s: no test is named in\n%s", security, row)
			}
		}
	}
}

// The page on Slurm's states and commands claims only what a test shows: each row
// names one, and says for each version of Slurm how it went there.
func TestEveryRowOfTheMatrixHasItsTest(t *testing.T) {
	rows := 0
	for number, line := range strings.Split(string(read(t, matrix)), "\n") {
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		if !strings.HasPrefix(line, "| ") || cells[0] == "what is done" {
			continue
		}
		rows++
		if len(cells) != 5 || len(mentions(cells[3])) == 0 {
			t.Errorf("%s:%d: no test is named, or a column is missing", matrix, number+1)
			continue
		}
		seen, complete := outcomes(cells[4])
		if !complete {
			t.Errorf("%s:%d: %q does not say how each version went", matrix, number+1, cells[4])
		}
		for _, seen := range seen {
			if !outcome.MatchString(seen) {
				t.Errorf("%s:%d: %q is none of passed, differs, fails and not run", matrix, number+1, seen)
			}
		}
	}
	if rows == 0 {
		t.Errorf("%s has no rows", matrix)
	}
}
