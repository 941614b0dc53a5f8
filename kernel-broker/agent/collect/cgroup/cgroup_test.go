// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestParse(t *testing.T) {
	values, err := parse([]byte("usage_usec 12\nuser_usec 7\n\n"))
	if err == nil {
		t.Errorf("an empty line was taken: %v", values)
	}
	values, err = parse([]byte("usage_usec 12\nuser_usec 7\n"))
	if err != nil || values["usage_usec"] != 12 || values["user_usec"] != 7 {
		t.Errorf("%v, %v", values, err)
	}
	for _, text := range []string{"a", "a b", " 1", "a -1"} {
		if values, err := parse([]byte(text)); !errors.Is(err, errLine) {
			t.Errorf("%q: %v, %v", text, values, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("populated 1\nfrozen 0\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		values, err := parse(text)
		if err == nil && values == nil {
			t.Error("neither values nor an error")
		}
	})
}

func TestLess(t *testing.T) {
	got := CPUTime{AllNS: 5, UserNS: 3, SystemNS: 2}.Less(CPUTime{AllNS: 1, UserNS: 4})
	if got != (CPUTime{AllNS: 4, SystemNS: 2}) {
		t.Errorf("less is %+v", got)
	}
}

func TestOpenRefuses(t *testing.T) {
	if _, err := Open(t.TempDir()); !errors.Is(err, ErrKind) {
		t.Errorf("a plain folder: %v", err)
	}
	if _, err := Open("/nowhere"); err == nil {
		t.Error("a folder that is not there was opened")
	}
}

// group is a folder with what the kernel shows of a cgroup with a process.
func group(t *testing.T, path string) *Group {
	t.Helper()
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"cgroup.events": "populated 1\n", "cpu.stat": "usage_usec 7\nuser_usec 4\nsystem_usec 3\n"} {
		if err := os.WriteFile(filepath.Join(path, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	id, err := inode(path)
	if err != nil {
		t.Fatal(err)
	}
	return &Group{Path: path, ID: id}
}

// Slurm removes a job's cgroup when no step is left, and makes another of the same name for the next.
func TestAnotherGroupOfThatName(t *testing.T) {
	path := filepath.Join(t.TempDir(), "job_7")
	before := group(t, path)
	if alive, err := before.Populated(); !alive || err != nil {
		t.Fatalf("populated: %v, %v", alive, err)
	}
	if err := os.Rename(path, path+".removed"); err != nil {
		t.Fatal(err)
	}
	if !before.Gone() {
		t.Error("the removed one is not gone")
	}
	now := group(t, path)
	if alive, err := before.Populated(); alive || err != nil {
		t.Errorf("the removed one is populated: %v, %v", alive, err)
	}
	if used, err := before.CPUTime(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the removed one used %+v, %v", used, err)
	}
	if !before.Gone() || now.Gone() {
		t.Errorf("the removed one is gone: %v, the new one: %v", before.Gone(), now.Gone())
	}
	for what, g := range map[string]*Group{"the new one": now, "whichever has the name": {Path: path}} {
		if alive, err := g.Populated(); !alive || err != nil {
			t.Errorf("%s: populated: %v, %v", what, alive, err)
		}
		if used, err := g.CPUTime(); err != nil || used.AllNS != 7000 {
			t.Errorf("%s used %+v, %v", what, used, err)
		}
	}
}
