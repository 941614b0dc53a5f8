// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"strings"
	"testing"
)

// Shorter than this, a package comment only repeats the name.
const leastComment = 60

// A name that says nothing about what is inside collects everything.
var emptyNames = map[string]bool{
	"util": true, "utils": true, "common": true, "helper": true, "helpers": true,
	"misc": true, "base": true, "shared": true,
}

type goPackage struct {
	name    string
	comment string
	written bool // by a person
}

func packages(t *testing.T) map[string]*goPackage {
	t.Helper()
	all := map[string]*goPackage{}
	for _, name := range files(t, ".go") {
		if strings.Contains("/"+name, "/testdata/") {
			continue
		}
		text := read(t, name)
		file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if strings.HasSuffix(file.Name.Name, "_test") {
			continue
		}
		dir := path.Dir(name)
		if all[dir] == nil {
			all[dir] = &goPackage{name: file.Name.Name}
		}
		all[dir].written = all[dir].written || !generated(name, text)
		all[dir].comment += commentOf(file)
	}
	return all
}

// commentOf leaves out what a generator says about its input.
func commentOf(file *ast.File) string {
	if file.Doc == nil || ast.IsGenerated(file) {
		return ""
	}
	return file.Doc.Text()
}

func TestEveryPackageExplainsItself(t *testing.T) {
	for dir, pkg := range packages(t) {
		if pkg.written && len(pkg.comment) < leastComment {
			t.Errorf("%s: the package comment has %d characters; say what the idea is", dir, len(pkg.comment))
		}
		want := "Package " + pkg.name + " "
		if pkg.comment != "" && pkg.name != "main" && !strings.HasPrefix(pkg.comment, want) {
			t.Errorf("%s: the package comment does not begin with %q", dir, want)
		}
	}
}

func TestPackageNamesSayWhatIsInside(t *testing.T) {
	for dir, pkg := range packages(t) {
		for part := range strings.SplitSeq(dir, "/") {
			if emptyNames[part] {
				t.Errorf("%s: %q says nothing about what is inside", dir, part)
			}
		}
		if emptyNames[pkg.name] {
			t.Errorf("%s: package %s: the name says nothing about what is inside", dir, pkg.name)
		}
	}
}
