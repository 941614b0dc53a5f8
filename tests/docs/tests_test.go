// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// testFolder is a package's tests: their names, and the text of their files.
type testFolder struct {
	names []string
	text  string
}

var testName = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w*)\(`)

// testFolders are all of the repository, by their paths.
func testFolders(t *testing.T) map[string]*testFolder {
	t.Helper()
	top := root(t)
	all := map[string]*testFolder{}
	for _, name := range files(t, "*_test.go") {
		text, err := os.ReadFile(filepath.Join(top, name))
		if os.IsNotExist(err) {
			continue // removed, and not committed yet
		}
		if err != nil {
			t.Fatal(err)
		}
		folder := all[filepath.Dir(name)]
		if folder == nil {
			folder = &testFolder{}
			all[filepath.Dir(name)] = folder
		}
		folder.text += string(text)
		for _, found := range testName.FindAllStringSubmatch(string(text), -1) {
			folder.names = append(folder.names, found[1])
		}
	}
	return all
}

// missing are the alternatives of a -run pattern that no test of the packages matches.
func missing(all map[string]*testFolder, packages []string, pattern string) (wrong []string) {
	first, _, _ := strings.Cut(pattern, "/")
	alternatives := []string{first}
	if !strings.ContainsAny(first, "()") {
		alternatives = strings.Split(first, "|")
	}
	for _, one := range alternatives {
		re, err := regexp.Compile(one)
		if err != nil || one == "" || !matches(all, packages, re) {
			wrong = append(wrong, one)
		}
	}
	return wrong
}

func matches(all map[string]*testFolder, packages []string, re *regexp.Regexp) bool {
	for path, folder := range all {
		for _, p := range packages {
			p = strings.TrimSuffix(strings.TrimPrefix(p, "./"), "/")
			tree, whole := strings.CutSuffix(p, "/...")
			if path != p && (!whole || path != tree && !strings.HasPrefix(path, tree+"/")) {
				continue
			}
			for _, name := range folder.names {
				if re.MatchString(name) {
					return true
				}
			}
		}
	}
	return false
}

var (
	quotedText = regexp.MustCompile("`([^`\n]+)`")
	runPattern = regexp.MustCompile(`[ "]-run '([^']+)'|[ "]-run "([^"]+)"|[ "]-run ([^ "'` + "`" + `]+)`)
	packageArg = regexp.MustCompile(`(?:^|[ =])(\./[\w./-]+)`)
)

// packagesOf a command in a page: those that it names, or its make target's.
func packagesOf(command string) (packages []string) {
	for _, found := range packageArg.FindAllStringSubmatch(command, -1) {
		packages = append(packages, found[1])
	}
	if len(packages) > 0 {
		return packages
	}
	if strings.HasPrefix(command, "...") {
		return []string{"./kernel-broker/...", "./tests/..."} // a command before it names them
	}
	if strings.Contains(command, "make test-emulated") {
		return []string{"./tests/emulated/..."}
	}
	return []string{"./tests/suites", "./tests/systemd", "./tests/factory", "./tests/gather"}
}

// Each test that the pages name, in a command or as what shows a row of the matrix, exists.
func TestNamedTestsExist(t *testing.T) {
	all := testFolders(t)
	seen := 0
	for page, text := range pages(t) {
		for _, quoted := range quotedText.FindAllStringSubmatch(text, -1) {
			command := strings.ReplaceAll(quoted[1], `\|`, "|")
			for _, run := range runPattern.FindAllStringSubmatch(command, -1) {
				seen++
				if run[3] == "NAME" {
					continue
				}
				if wrong := missing(all, packagesOf(command), run[1]+run[2]+run[3]); len(wrong) > 0 {
					t.Errorf("%s: %s: no test matches %q", page, command, wrong)
				}
			}
		}
	}
	if seen < 5 {
		t.Errorf("only %d commands that run tests were found", seen)
	}
}

func TestMissingTestsAreFound(t *testing.T) {
	all := map[string]*testFolder{"a/b": {names: []string{"TestOne"}}, "a/c": {names: []string{"TestTwo"}}}
	for _, c := range []struct {
		packages []string
		pattern  string
		want     string
	}{
		{[]string{"./a/..."}, "One|Two", ""},
		{[]string{"./a/b"}, "One|Two", "Two"},
		{[]string{"./a/b"}, "^TestOne$/part", ""},
		{[]string{"./a/b"}, "(Two|Three)", "(Two|Three)"},
		{[]string{"./a"}, "One", "One"},
		{nil, "One", "One"},
	} {
		if got := strings.Join(missing(all, c.packages, c.pattern), " "); got != c.want {
			t.Errorf("%v %s: %q", c.packages, c.pattern, got)
		}
	}
}
