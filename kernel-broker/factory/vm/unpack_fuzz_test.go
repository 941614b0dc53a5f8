// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"archive/tar"
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kernelbroker/kernelbroker/tests/support/tartest"
)

// FuzzUnpack is what a guest sends back. Whatever it is, nothing but folders and
// files is made, all of them in the run's own folder, and what is taken for whole
// has an exit code and says of itself that it is.
func FuzzUnpack(f *testing.F) {
	code, end := part{name: "run/exit", text: "3\n"}, part{name: "run/whole"}
	for _, parts := range [][]part{
		{code, {name: "out/", kind: tar.TypeDir}, {name: "out/a/b", text: "text"}, {name: "out/link", text: "/etc/passwd", kind: tar.TypeSymlink}, end},
		{code, {name: "out/../../x", text: "x"}, end},
		{code, {name: "out", text: "x"}, end},
		{code, {name: "out/link", text: "..", kind: tar.TypeSymlink}, {name: "out/link/x", text: "x"}, end},
		{{name: "run/exit", text: "256"}, end, {name: "out/x", text: strings.Repeat("x", 600)}},
	} {
		f.Add(entries(f, parts...), true)
	}
	f.Add(stream(f, code, end), false)
	f.Fuzz(func(t *testing.T, sent []byte, zip bool) {
		archive := sent
		if zip {
			archive = tartest.FixChecksums(sent)
			sent = tartest.Zip(archive)
		}
		parent := t.TempDir()
		dir := filepath.Join(parent, "dir")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		got, err := take(bytes.NewReader(sent), dir)
		if err == nil && zip && (got < 0 || got > 255 || !bytes.Contains(archive, []byte(exitEntry)) || !bytes.Contains(archive, []byte(endEntry))) {
			t.Errorf("exit code %d of a stream without one, or without its end", got)
		}
		err = filepath.WalkDir(parent, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && path != parent && path != dir && !strings.HasPrefix(path, dir+"/") {
				t.Errorf("%q was made", path)
			}
			if err == nil && !entry.IsDir() && !entry.Type().IsRegular() {
				t.Errorf("%q is %v", path, entry.Type())
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	})
}
