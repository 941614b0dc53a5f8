// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzConsole is all that a kernel prints. It is looked at while it comes, and
// the same is seen of it in whichever pieces that is.
func FuzzConsole(f *testing.F) {
	f.Add([]byte("[    1.0] Kernel panic - not syncing: x\r\n---[ end Kernel panic"), 14)
	f.Add([]byte("Failed to execute /init (error -2)\nready\n"), 3)
	f.Add([]byte("\x00\xff\r\r\n"), 1)
	f.Fuzz(func(t *testing.T, text []byte, cut int) {
		cut = max(0, min(cut, len(text)))
		path := filepath.Join(t.TempDir(), "console")
		var copied bytes.Buffer
		looked := &console{path: path, copy: &copied}
		if err := looked.read(); err != nil {
			t.Fatal(err)
		}
		for _, so := range [][]byte{text[:cut], text} {
			if err := os.WriteFile(path, so, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := looked.read(); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(copied.Bytes(), text) {
			t.Errorf("%q is copied as %q", text, copied.Bytes())
		}
		if looked.panicked != bytes.Contains(text, panicMark) || looked.astray != bytes.Contains(text, initMark) {
			t.Errorf("in two parts, at %d: panicked %v, astray %v", cut, looked.panicked, looked.astray)
		}
		failed := looked.failure(ReasonPanic, nil)
		if strings.Count(failed.Tail, "\n") >= tailLines || strings.Contains(failed.Said, "\n") || looked.panicked && !strings.Contains(failed.Said, strings.ReplaceAll(string(panicMark), "\r", "")) {
			t.Errorf("%+v", failed)
		}
	})
}

// FuzzProgram is a file of a package that goes into a guest.
func FuzzProgram(f *testing.F) {
	own, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(own[:4096])
	f.Add([]byte("\x7fELF\x02\x01\x01"))
	f.Add([]byte("#!/bin/sh\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "program")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		found, err := readProgram(path)
		if err != nil {
			if !strings.Contains(err.Error(), path) {
				t.Errorf("%v does not name the file", err)
			}
			return
		}
		if elf := bytes.HasPrefix(data, []byte("\x7fELF")); (found != nil) != elf {
			t.Errorf("ELF is %v, found %+v", elf, found)
		}
		if found != nil && (strings.HasSuffix(found.loader, "\x00") || len(found.loader) > len(data)) {
			t.Errorf("loader %q", found.loader)
		}
	})
}
