// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kernelbroker/kernelbroker/tests/support/tartest"
)

type part struct {
	name, text string
	kind       byte
}

func stream(t testing.TB, parts ...part) []byte {
	t.Helper()
	return tartest.Zip(entries(t, parts...))
}

func entries(t testing.TB, parts ...part) []byte {
	t.Helper()
	var made bytes.Buffer
	out := tar.NewWriter(&made)
	for _, p := range parts {
		if p.kind == 0 {
			p.kind = tar.TypeReg
		}
		header := &tar.Header{Name: p.name, Typeflag: p.kind, Mode: 0o644, Size: int64(len(p.text))}
		if p.kind == tar.TypeSymlink {
			header.Linkname, header.Size = p.text, 0
			p.text = ""
		}
		if err := out.WriteHeader(header); err != nil {
			t.Fatal(err)
		}
		if _, err := out.Write([]byte(p.text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	return made.Bytes()
}

// bomb is a stream that says it holds more than anybody has room for.
func bomb(t *testing.T) []byte {
	t.Helper()
	var packed bytes.Buffer
	zipped := gzip.NewWriter(&packed)
	out := tar.NewWriter(zipped)
	if err := out.WriteHeader(&tar.Header{Name: "out/x", Typeflag: tar.TypeReg, Mode: 0o644, Size: mostBytes + 1}); err != nil {
		t.Fatal(err)
	}
	if err := zipped.Close(); err != nil {
		t.Fatal(err)
	}
	return packed.Bytes()
}

func TestUnpack(t *testing.T) {
	code := part{name: "run/exit", text: "3\n"}
	end := part{name: "run/whole"}
	good := stream(t, code, part{name: "out/", kind: tar.TypeDir}, part{name: "out/a/b", text: "text"},
		part{name: "out/link", text: "/etc/passwd", kind: tar.TypeSymlink}, end)
	cases := map[string]struct {
		stream []byte
		want   string // of the error; none if empty
	}{
		"whole":                 {good, ""},
		"followed by noise":     {append(bytes.Clone(good), 0, 0, 7), ""},
		"nothing":               {nil, "EOF"},
		"cut":                   {good[:len(good)-12], "unexpected EOF"},
		"damaged":               {append(bytes.Clone(good[:40]), bytes.Repeat([]byte{9}, 400)...), "the result"},
		"no end":                {stream(t, code), "did not come whole"},
		"no exit code":          {stream(t, end), "did not come whole"},
		"odd exit code":         {stream(t, part{name: "run/exit", text: "x"}, end), `exit code "x"`},
		"out of the folder":     {stream(t, code, part{name: "out/../../x", text: "x"}, end), "not below /out"},
		"elsewhere":             {stream(t, code, part{name: "etc/x", text: "x"}, end), "not below /out"},
		"twice the same file":   {stream(t, code, part{name: "out/x"}, part{name: "out/x"}, end), "file exists"},
		"more than fits":        {bomb(t), "1 over the limit"},
		"many folders":          {stream(t, code, part{name: "out/" + strings.Repeat("b/", 4000) + "x"}, end), "bytes, "},
		"goes on":               {tartest.Zip(append(entries(t, code, end), make([]byte, 1<<20)...)), "behind its end"},
		"a name like another's": {stream(t, code, part{name: "outside"}, end), "not below /out"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "stream")
			if err := os.WriteFile(path, c.stream, 0o644); err != nil {
				t.Fatal(err)
			}
			got, err := unpack(path, filepath.Join(dir, "files"))
			if c.want != "" {
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Fatalf("error is %v, want %q", err, c.want)
				}
				return
			}
			if err != nil || got != 3 {
				t.Fatalf("code %d, %v", got, err)
			}
			text, err := os.ReadFile(filepath.Join(dir, "files/a/b"))
			if err != nil || string(text) != "text" {
				t.Errorf("file is %q, %v", text, err)
			}
			if _, err := os.Lstat(filepath.Join(dir, "files/link")); err == nil {
				t.Error("a link of the guest was made on the host")
			}
		})
	}
}
