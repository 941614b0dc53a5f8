// SPDX-License-Identifier: Apache-2.0

package modules

import (
	"archive/tar"
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

const release = "6.1.0-test"

func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, "lib/modules", release, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func list() List {
	return List{Format: 1, Release: release, Load: []string{"updates/a.ko", "updates/b.ko"},
		Packages: []Package{{Name: "ab", Version: "1.2", Modules: []string{"a", "b"}}}}
}

func TestPackAndUnpack(t *testing.T) {
	from := tree(t, map[string]string{"updates/a.ko": "A", "updates/b.ko": "B", "modules.dep": "updates/b.ko: updates/a.ko\n"})
	if err := os.Symlink("/usr/src/linux", filepath.Join(from, "lib/modules", release, "build")); err != nil {
		t.Fatal(err)
	}
	var archive, again bytes.Buffer
	if err := errors.Join(Pack(&archive, list(), from), Pack(&again, list(), from)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(archive.Bytes(), again.Bytes()) {
		t.Error("the same content gives other bytes")
	}
	dir := t.TempDir()
	got, err := Unpack(&archive, dir)
	if err != nil || !reflect.DeepEqual(got, list()) {
		t.Fatalf("%+v, %v", got, err)
	}
	text, err := os.ReadFile(filepath.Join(got.Tree(dir), "updates/b.ko"))
	if err != nil || string(text) != "B" {
		t.Errorf("%q, %v", text, err)
	}
	if _, err := os.Lstat(filepath.Join(got.Tree(dir), "build")); err == nil {
		t.Error("the link to the source is in the archive")
	}
}

func TestPackRefuses(t *testing.T) {
	from := tree(t, map[string]string{"updates/a.ko": "A"})
	for words, change := range map[string]func(*List){
		"is not there":   func(*List) {},
		"names nothing":  func(l *List) { l.Load = nil },
		"is no module":   func(l *List) { l.Load = []string{"../../etc/x.ko"} },
		`release "../x"`: func(l *List) { l.Release = "../x" },
	} {
		l := list()
		change(&l)
		if err := Pack(&bytes.Buffer{}, l, from); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v", words, err)
		}
	}
}

// archive makes one of entries, which may be wrong.
func archive(t testing.TB, entries ...*tar.Header) []byte {
	t.Helper()
	var out bytes.Buffer
	compressor, err := zstd.NewWriter(&out)
	if err != nil {
		t.Fatal(err)
	}
	writer := tar.NewWriter(compressor)
	for _, h := range entries {
		content := h.PAXRecords["TEST.content"]
		h.Size, h.PAXRecords = int64(len(content)), nil
		if h.Typeflag == tar.TypeSymlink {
			h.Size, content = 0, ""
		}
		if err := writer.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := writer.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(writer.Close(), compressor.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func entry(name, content string) *tar.Header {
	return &tar.Header{Name: name, Mode: 0o644, Typeflag: tar.TypeReg, PAXRecords: map[string]string{"TEST.content": content}}
}

const good = `{"format":1,"release":"` + release + `","load":["a.ko"],"packages":[]}`

func TestUnpackRefuses(t *testing.T) {
	link := entry("lib/modules/"+release+"/a.ko", "")
	link.Typeflag, link.Linkname = tar.TypeSymlink, "/etc/shadow"
	for name, entries := range map[string][]*tar.Header{
		"nothing":           {},
		"no list":           {entry("lib/modules/"+release+"/a.ko", "A")},
		"a link":            {entry(listFile, good), link},
		"out of it":         {entry(listFile, good), entry("lib/modules/"+release+"/../../../x", "X")},
		"another release":   {entry(listFile, good), entry("lib/modules/6.1.0-other/a.ko", "A")},
		"twice":             {entry(listFile, good), entry("lib/modules/"+release+"/a.ko", "A"), entry("lib/modules/"+release+"/a.ko", "B")},
		"unknown key":       {entry(listFile, strings.Replace(good, "{", `{"options":"x",`, 1))},
		"another format":    {entry(listFile, strings.Replace(good, `"format":1`, `"format":2`, 1))},
		"loads what is out": {entry(listFile, strings.Replace(good, "a.ko", "/a.ko", 1))},
	} {
		dir := t.TempDir()
		if _, err := Unpack(bytes.NewReader(archive(t, entries...)), dir); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func FuzzUnpack(f *testing.F) {
	f.Add(archive(f, entry(listFile, good), entry("lib/modules/"+release+"/a.ko", "A")))
	f.Add([]byte("no archive"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		dir := t.TempDir()
		list, err := Unpack(bytes.NewReader(raw), filepath.Join(dir, "in"))
		if err == nil && list.validate() != nil {
			t.Fatalf("%+v", list)
		}
		entries, _ := os.ReadDir(dir)
		if len(entries) > 1 || len(entries) == 1 && entries[0].Name() != "in" {
			t.Fatalf("%v is outside", entries)
		}
	})
}
