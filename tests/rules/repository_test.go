// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"bytes"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/kernelbroker/kernelbroker"

// root is the repository's top, as seen from this package's folder.
var root = filepath.Join("..", "..")

// list asks git once for all rules.
var list = sync.OnceValues(func() ([]string, error) {
	cmd := exec.Command("git", "ls-files", "-z", "-co", "--exclude-standard")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	var names []string
	for name := range strings.SplitSeq(strings.TrimRight(string(out), "\x00"), "\x00") {
		if info, err := os.Lstat(filepath.Join(root, name)); err == nil && info.Mode().IsRegular() {
			names = append(names, name)
		}
	}
	return names, nil
})

// files returns the repository's files with one of these endings, all without
// an ending given. It fails the test that would otherwise check nothing.
func files(t *testing.T, endings ...string) []string {
	t.Helper()
	all, err := list()
	if err != nil {
		t.Fatalf("git ls-files: %v", err)
	}
	var names []string
	folders := map[string]bool{}
	for _, name := range all {
		for dir := path.Dir(name); !folders[dir]; dir = path.Dir(dir) {
			folders[dir] = true
		}
		if len(endings) == 0 {
			names = append(names, name)
		}
		for _, ending := range endings {
			if strings.HasSuffix(name, ending) {
				names = append(names, name)
				break
			}
		}
	}
	if len(names) == 0 {
		t.Fatalf("no files with an ending of %q", endings)
	}
	noticeNewFiles(t, folders)
	return names
}

// noticeNewFiles reads the folders: go test reuses a result while the files
// that the test read are unchanged, and what git read it does not know of.
func noticeNewFiles(t *testing.T, folders map[string]bool) {
	t.Helper()
	for dir := range folders {
		if _, err := os.ReadDir(filepath.Join(root, dir)); err != nil {
			t.Fatal(err)
		}
	}
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// generated says whether a program wrote this file.
func generated(name string, text []byte) bool {
	return strings.HasSuffix(name, ".pb.go") || bytes.Contains(text[:min(len(text), 256)], []byte("\n// Code generated "))
}
