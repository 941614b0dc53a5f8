// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

func note(name string, kind uint32, desc string) []byte {
	raw := binary.NativeEndian.AppendUint32(nil, uint32(len(name)))
	raw = binary.NativeEndian.AppendUint32(raw, uint32(len(desc)))
	raw = binary.NativeEndian.AppendUint32(raw, kind)
	for _, part := range []string{name, desc} {
		raw = append(raw, part...)
		raw = append(raw, make([]byte, -len(part)&3)...)
	}
	return raw
}

func TestBuildID(t *testing.T) {
	xen, linux, gnu := note("Xen\x00", 3, "12345"), note("Linux\x00", 0x100, ""), note("GNU\x00", 3, "\x5f\x0c\xff")
	for _, c := range []struct {
		name  string
		notes [][]byte
		want  string
	}{
		{"among others", [][]byte{xen, linux, gnu}, "5f0cff"},
		{"alone", [][]byte{gnu}, "5f0cff"},
		{"last without padding", [][]byte{gnu[:len(gnu)-1]}, "5f0cff"},
		{"none", [][]byte{xen, linux}, ""},
		{"cut", [][]byte{gnu[:len(gnu)-3]}, ""},
		{"empty", nil, ""},
	} {
		var raw []byte
		for _, n := range c.notes {
			raw = append(raw, n...)
		}
		got, err := BuildID(raw)
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s: got %q, %v", c.name, got, err)
		}
	}
}

func TestRead(t *testing.T) {
	proc, sys := t.TempDir(), t.TempDir()
	put := func(root, name, content string) {
		path := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	put(proc, "sys/kernel/random/boot_id", "b-1\n")
	put(proc, "sys/kernel/osrelease", "6.1.0\n")
	put(proc, "cmdline", "ro kernelbroker.token=aa\n")
	put(proc, "stat", "cpu 1 2\nbtime 1790000000\n")
	if _, err := Read(proc, sys); err == nil {
		t.Error("no notes, no error")
	}
	put(sys, "kernel/notes", string(note("GNU\x00", 3, "\x01\x02")))
	want := kb.Boot{BootID: "b-1", BuildID: "0102", Release: "6.1.0", Token: "aa", BootedAt: time.Unix(1790000000, 0).UTC()}
	if got, err := Read(proc, sys); err != nil || got != want {
		t.Errorf("got %+v, %v", got, err)
	}
}

// The running kernel is a case that nobody made up.
func TestReadTheRunningKernel(t *testing.T) {
	if _, err := os.Stat("/sys/kernel/notes"); err != nil {
		t.Skip("this machine shows no kernel notes: ", err)
	}
	boot, err := Read("/proc", "/sys")
	if err != nil || len(boot.BuildID) < 16 || boot.BootID == "" {
		t.Errorf("got %+v, %v", boot, err)
	}
}

func FuzzBuildID(f *testing.F) {
	f.Add(note("GNU\x00", 3, "\x01"))
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xff\xff\x03\x00\x00\x00GNU"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if id, err := BuildID(raw); (err == nil) != (id != "") {
			t.Fatalf("%q, %v", id, err)
		}
	})
}
