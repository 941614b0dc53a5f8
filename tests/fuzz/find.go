package fuzz

import (
	"bufio"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Target is one fuzz target.
type Target struct {
	// Package is its folder below the repository's root.
	Package string `json:"package"`
	Name    string `json:"target"`
}

func (t Target) String() string { return t.Package + "." + t.Name }

var (
	definition = regexp.MustCompile(`^func (Fuzz\w+)\(\w+ \*testing\.F\)`)
	constraint = regexp.MustCompile(`^//go:build `)
)

// Find returns the targets below folders of root whose name contains the words,
// in the order of their names. Files that are built under a condition are none
// of ours: the virtual cluster is behind one.
func Find(root string, folders []string, words string) ([]Target, error) {
	var found []Target
	for _, folder := range folders {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() && entry.Name() == "testdata" {
				return skip(err)
			}
			if entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
				return nil
			}
			names, err := targetsIn(path)
			if err != nil {
				return err
			}
			within, err := filepath.Rel(root, filepath.Dir(path))
			if err != nil {
				return err
			}
			for _, name := range names {
				if t := (Target{Package: filepath.ToSlash(within), Name: name}); strings.Contains(t.String(), words) {
					found = append(found, t)
				}
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("fuzz targets: %w", err)
		}
	}
	slices.SortFunc(found, func(a, b Target) int { return strings.Compare(a.String(), b.String()) })
	return found, nil
}

func skip(err error) error {
	if err != nil {
		return err
	}
	return fs.SkipDir
}

func targetsIn(path string) (names []string, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if constraint.MatchString(lines.Text()) {
			return nil, nil
		}
		if m := definition.FindStringSubmatch(lines.Text()); m != nil {
			names = append(names, m[1])
		}
	}
	return names, lines.Err()
}
