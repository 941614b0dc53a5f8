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

	file string // that defines it, below the root
}

func (t Target) String() string { return t.Package + "." + t.Name }

var (
	definition = regexp.MustCompile(`^func (Fuzz\w+)\(\w+ \*testing\.F\)`)
	constraint = regexp.MustCompile(`^//go:build `)
)

// Find returns the targets below folders of root in the order of their names.
// Files that are built under a condition are none of ours: the virtual cluster
// is behind one.
func Find(root string, folders ...string) ([]Target, error) {
	var found []Target
	for _, folder := range folders {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() && entry.Name() == "testdata" {
				return skip(err)
			}
			if entry.IsDir() {
				return nil
			}
			within, err := filepath.Rel(root, path)
			if err != nil {
				return err
			}
			if t := targetInC(within); t.inC() {
				found = append(found, t)
			}
			if !strings.HasSuffix(path, "_test.go") {
				return nil
			}
			names, err := targetsIn(path)
			if err != nil {
				return err
			}
			for _, name := range names {
				found = append(found, Target{Package: filepath.ToSlash(filepath.Dir(within)), Name: name, file: within})
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

// Choose returns the targets whose names contain one of the words, in the order
// of the words; all of them without any.
func Choose(targets []Target, words []string) (chosen []Target) {
	if len(words) == 0 {
		return targets
	}
	for _, word := range words {
		for _, t := range targets {
			if strings.Contains(t.String(), word) && !slices.Contains(chosen, t) {
				chosen = append(chosen, t)
			}
		}
	}
	return chosen
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
