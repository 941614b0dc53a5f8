// SPDX-License-Identifier: Apache-2.0

package build

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/digest"
)

// tree makes a folder with a Makefile of a known time and a tarball of it.
func sourceTree(t *testing.T) (dir, tarball string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "linux-9.9")
	write(t, filepath.Join(dir, "Makefile"), "all:\n\ttrue\n")
	write(t, filepath.Join(dir, "fs/a.c"), "one\ntwo\nthree\n")
	day := time.Date(2024, 2, 3, 4, 5, 6, 0, time.UTC)
	if err := os.Chtimes(filepath.Join(dir, "Makefile"), day, day); err != nil {
		t.Fatal(err)
	}
	tarball = dir + ".tar"
	if _, err := output(t.Context(), "tar", "-C", filepath.Dir(dir), "-cf", tarball, "linux-9.9"); err != nil {
		t.Fatal(err)
	}
	return dir, tarball
}

func digestOf(t *testing.T, path string) string {
	t.Helper()
	sum, _, err := digest.File(path)
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

func fetch(t *testing.T, from RecipeSource, patches ...RecipePatch) (Source, error) {
	t.Helper()
	return fetchWith(t, t.TempDir(), from, patches...)
}

// fetchWith takes the patches from the catalog's folder.
func fetchWith(t *testing.T, catalog string, from RecipeSource, patches ...RecipePatch) (Source, error) {
	t.Helper()
	b := &Builder{Catalog: catalog, Cache: Cache{Dir: t.TempDir()}}
	found, err := b.sourcePackage(t.Context(), Recipe{Source: from, Patches: patches})
	if err != nil {
		return Source{}, err
	}
	return b.Fetch(t.Context(), Plan{Source: found})
}

func TestTarballByDigest(t *testing.T) {
	_, tarball := sourceTree(t)
	server := httptest.NewServer(http.FileServer(http.Dir(filepath.Dir(tarball))))
	defer server.Close()
	for name, place := range map[string]string{"path": tarball, "address": server.URL + "/linux-9.9.tar"} {
		t.Run(name, func(t *testing.T) {
			source, err := fetch(t, RecipeSource{Tarball: place, Digest: digestOf(t, tarball)})
			if err != nil {
				t.Fatal(err)
			}
			date, err := source.Date()
			if err != nil || date.Year() != 2024 || source.Digest != digestOf(t, tarball) {
				t.Errorf("%+v of %v, %v", source, date, err)
			}
			wrong := RecipeSource{Tarball: place, Digest: "sha256:" + strings.Repeat("0", 64)}
			if _, err := fetch(t, wrong); err == nil || !strings.Contains(err.Error(), "the recipe says sha256:0000") {
				t.Errorf("another digest: %v", err)
			}
		})
	}
	gone := RecipeSource{Tarball: server.URL + "/none.tar", Digest: digestOf(t, tarball)}
	if _, err := fetch(t, gone); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("an address with nothing there: %v", err)
	}
}

func TestGitByCommit(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skipf("needs git, which is in .ci/packages.txt: %v", err)
	}
	dir, _ := sourceTree(t)
	git := func(args ...string) string {
		t.Helper()
		said, err := output(t.Context(), "git", append([]string{
			"-C", dir, "-c", "user.name=a", "-c", "user.email=a@example.org",
		}, args...)...)
		if err != nil {
			t.Fatal(err)
		}
		return said
	}
	git("init", "-q")
	git("add", ".")
	git("commit", "-q", "-m", "one", "--date=2024-02-03T04:05:06Z")
	commit := git("rev-parse", "HEAD")
	source, err := fetch(t, RecipeSource{Git: dir, Commit: commit})
	if err != nil {
		t.Fatal(err)
	}
	if !exists(filepath.Join(source.Tree, "fs/a.c")) || source.Digest != "git:"+commit {
		t.Errorf("%+v", source)
	}
	if _, err := fetch(t, RecipeSource{Git: dir, Commit: strings.Repeat("0", 40)}); err == nil {
		t.Error("a commit that is not there was fetched")
	}
}

func TestPatches(t *testing.T) {
	if _, err := exec.LookPath("patch"); err != nil {
		t.Skipf("needs patch, which is in .ci/packages.txt: %v", err)
	}
	_, tarball := sourceTree(t)
	from := RecipeSource{Tarball: tarball, Digest: digestOf(t, tarball)}
	catalog := t.TempDir()
	const change = "--- a/fs/a.c\n+++ b/fs/a.c\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n"
	const makefile = "--- a/Makefile\n+++ b/Makefile\n@@ -1,2 +1,2 @@\n all:\n-\ttrue\n+\tfalse\n"
	write(t, filepath.Join(catalog, "patches/two.patch"), change)
	write(t, filepath.Join(catalog, "patches/make.patch"), makefile)
	write(t, filepath.Join(catalog, "patches/shifted.patch"), strings.Replace(change, "-two", "-zwei", 1))
	named := func(file string) RecipePatch { return RecipePatch{File: file, Upstream: "never sent"} }

	plain, err := fetchWith(t, catalog, from)
	if err != nil {
		t.Fatal(err)
	}
	source, err := fetchWith(t, catalog, from, named("two.patch"), named("make.patch"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(source.Tree, "fs/a.c"))
	if err != nil || string(text) != "one\n2\nthree\n" {
		t.Errorf("patched: %q, %v", text, err)
	}
	before, err := plain.Date()
	if err != nil {
		t.Fatal(err)
	}
	if after, err := source.Date(); err != nil || !after.Equal(before) {
		t.Errorf("the source's date is %v and was %v, %v", after, before, err)
	}
	if len(source.Patches) != 2 || source.Patches[0].Upstream != "never sent" || source.Patches[0].Digest == "" {
		t.Errorf("%+v", source.Patches)
	}
	for file, want := range map[string]string{
		"shifted.patch": `patch "shifted.patch" does not fit tarball`,
		"none.patch":    `patch "none.patch": open`,
	} {
		if _, err := fetchWith(t, catalog, from, named(file)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error is %v", file, err)
		}
	}
}
