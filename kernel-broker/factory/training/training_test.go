// SPDX-License-Identifier: Apache-2.0

package training

import (
	"archive/tar"
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/digest"
)

var facts = Facts{Kernel: "mitgcm", Source: "linux-source-6.1 6.1.100-1", Compiler: "gcc-12; gcc-12 (Debian) 12.2.0; GNU ld 2.40", Workload: "replay seed 1 size 2"}

// folder with files by their paths.
func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestPackAndUnpack(t *testing.T) {
	dir := t.TempDir()
	parts := map[string]string{
		Slimming: folder(t, map[string]string{"slim.config": "# CONFIG_B is not set\n"}),
		Profile:  folder(t, map[string]string{"fs#namei.gcda": "counts", "mm#slab.gcda": "more"}),
	}
	first, err := Pack(filepath.Join(dir, "a"), facts, parts)
	if err != nil {
		t.Fatal(err)
	}
	for name, from := range parts { // the same content, another day
		again := folder(t, nil)
		if err := os.CopyFS(again, os.DirFS(from)); err != nil {
			t.Fatal(err)
		}
		parts[name] = again
	}
	second, err := Pack(filepath.Join(dir, "b"), facts, parts)
	if err != nil || first != second {
		t.Errorf("digests %s and %s, %v", first, second, err)
	}
	out := t.TempDir()
	got, err := Unpack(t.Context(), filepath.Join(dir, "a"), first, "mitgcm", out)
	if want := facts; err != nil || got.Source != want.Source || got.Workload != want.Workload {
		t.Fatalf("%+v, %v", got, err)
	}
	for name, want := range map[string]string{"slimming/slim.config": "# CONFIG_B is not set\n", "profile/fs#namei.gcda": "counts", "profile/mm#slab.gcda": "more"} {
		if text, err := os.ReadFile(filepath.Join(out, name)); err != nil || string(text) != want {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
	if _, err := os.Stat(filepath.Join(out, Report)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a report that nobody packed: %v", err)
	}
}

func TestSame(t *testing.T) {
	for name, c := range map[string]struct {
		source, compiler string
		probes           bool
		same             bool
		err              error
	}{
		"the very same":          {facts.Source, facts.Compiler, false, true, nil},
		"a point release":        {"linux-source-6.1 6.1.101-1", facts.Compiler, false, false, nil},
		"a patch of gcc":         {facts.Source, "gcc-12; gcc-12 (Debian) 12.2.1; GNU ld 2.40", false, false, nil},
		"another series":         {"linux-source-6.12 6.12.1-1", facts.Compiler, false, false, ErrOther},
		"another compiler":       {facts.Source, "gcc-14; gcc-14 (Debian) 14.1; GNU ld 2.40", false, false, ErrOtherProfile},
		"a compiler of no words": {facts.Source, "", false, false, ErrOtherProfile},
		"probes, of lines":       {facts.Source, facts.Compiler, true, false, ErrOtherProfile},
	} {
		if same, err := facts.Same(c.source, c.compiler, c.probes); same != c.same || !errors.Is(err, c.err) {
			t.Errorf("%s: %t, %v", name, same, err)
		}
	}
}

// Nothing of an archive that is not the recipe's, or that has what does not belong
// in one, is used.
func TestRefusals(t *testing.T) {
	entry := func(name, text string) *tar.Header {
		return &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(text))}
	}
	const said = `{"format":1,"kernel":"mitgcm"}`
	link := &tar.Header{Typeflag: tar.TypeSymlink, Name: "profile/x", Linkname: "/etc/passwd"}
	for name, c := range map[string]struct {
		headers []*tar.Header
		texts   []string
		want    string
	}{
		"no facts":         {[]*tar.Header{entry("profile/a", "")}, []string{""}, "training.json"},
		"outside":          {[]*tar.Header{entry("profile/../../x", "")}, []string{""}, "does not belong"},
		"another folder":   {[]*tar.Header{entry("etc/x", "")}, []string{""}, "does not belong"},
		"a link":           {[]*tar.Header{link}, []string{""}, "does not belong"},
		"twice":            {[]*tar.Header{entry("profile/a", ""), entry("profile/a", "")}, []string{"", ""}, "exists"},
		"another kernel's": {[]*tar.Header{entry("training.json", `{"format":1,"kernel":"redis"}`)}, []string{`{"format":1,"kernel":"redis"}`}, `of kernel "redis"`},
		"a later format":   {[]*tar.Header{entry("training.json", `{"format":2}`)}, []string{`{"format":2}`}, "format 2"},
		"no JSON":          {[]*tar.Header{entry("training.json", `{`)}, []string{`{`}, "training.json"},
	} {
		var packed bytes.Buffer
		compressor, err := zstd.NewWriter(&packed)
		if err != nil {
			t.Fatal(err)
		}
		archive := tar.NewWriter(compressor)
		for i, header := range c.headers {
			if err := archive.WriteHeader(header); err != nil {
				t.Fatal(err)
			}
			if _, err := archive.Write([]byte(c.texts[i])); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(archive.Close(), compressor.Close()); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "x")
		if err := os.WriteFile(file, packed.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Unpack(t.Context(), file, digest.Of(packed.Bytes()), "mitgcm", t.TempDir()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	file := filepath.Join(t.TempDir(), "x")
	if _, err := Pack(file, facts, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := Unpack(t.Context(), file, digest.Of([]byte(said)), "mitgcm", t.TempDir()); !errors.Is(err, ErrDamaged) {
		t.Errorf("another digest: %v", err)
	}
}
