// SPDX-License-Identifier: Apache-2.0

package pgo

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/collect"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/collect/cgroup"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
)

// counting is a directory as an instrumented kernel shows it.
func counting(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range map[string]string{
		"reset": "", "src/fs/read_write.gcda": "counters", "src/fs/read_write.gcno": "notes", "src/mm/memory.gcda": "more",
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func unpack(t *testing.T, path string) map[string]string {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	zipped, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for in := tar.NewReader(zipped); ; {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		all[header.Name] = string(content)
	}
}

func TestCountersAreCopiedTwice(t *testing.T) {
	root, folder := counting(t), t.TempDir()
	c := Collector{Root: root, BuildID: "abc"}
	if err := c.Check(); err != nil {
		t.Fatal(err)
	}
	session, err := c.Start(collect.Target{Node: "n1", Folder: folder})
	if err != nil {
		t.Fatal(err)
	}
	var early profiling.Result
	if err := session.Read(&early); err != nil || early.PGO != nil {
		t.Errorf("before the end: %+v, %v", early.PGO, err)
	}
	if err := errors.Join(session.Stop(), session.Stop()); err != nil {
		t.Fatal(err)
	}
	var result profiling.Result
	if err := session.Read(&result); err != nil {
		t.Fatal(err)
	}
	want := profiling.Archive{Node: "n1", BuildID: "abc", Name: "gcov-n1.tar.gz", Files: 4, Bytes: 24}
	if result.PGO == nil || !slices.Equal(result.PGO.Archives, []profiling.Archive{want}) {
		t.Errorf("result is %+v", result.PGO)
	}
	got := unpack(t, filepath.Join(folder, want.Name))
	for name, content := range map[string]string{
		"gcov/src/fs/read_write.gcda": "counters", "gcov/src/mm/memory.gcda": "more",
		"gcov.copying/src/fs/read_write.gcda": "counters", "gcov.copying/src/mm/memory.gcda": "more",
	} {
		if got[name] != content {
			t.Errorf("%s holds %q", name, got[name])
		}
	}
	if reset, err := os.ReadFile(filepath.Join(root, "reset")); err != nil || string(reset) != "1\n" {
		t.Errorf("reset holds %q, %v", reset, err)
	}
}

// After a job's last step the collectors wait for another. If none comes, the counters of the last one stay.
func TestIdleTimeReplacesNoCounters(t *testing.T) {
	group, folder := t.TempDir(), t.TempDir()
	used := func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(group, "cpu.stat"), []byte("usage_usec "+text+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	archive := filepath.Join(folder, "gcov-n1.tar.gz")
	if err := os.WriteFile(archive, []byte("of a step"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, until string
		replaced    bool
	}{{"idle", "7", false}, {"a step", "8", true}} {
		used("7")
		session, err := Collector{Root: counting(t)}.Start(collect.Target{Node: "n1", Folder: folder, Cgroup: &cgroup.Group{Path: group}})
		if err != nil {
			t.Fatal(err)
		}
		used(c.until)
		if err := session.Stop(); err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(archive)
		if err != nil || (string(content) != "of a step") != c.replaced {
			t.Errorf("%s: %d bytes, %v", c.name, len(content), err)
		}
		var result profiling.Result
		if err := session.Read(&result); err != nil || (result.PGO != nil) != c.replaced {
			t.Errorf("%s: %+v, %v", c.name, result.PGO, err)
		}
	}
}

func TestLargeCountersLeaveNothing(t *testing.T) {
	folder := t.TempDir()
	session, err := Collector{Root: counting(t), Most: 20}.Start(collect.Target{Node: "n1", Folder: folder})
	if err != nil {
		t.Fatal(err)
	}
	if err := session.Stop(); !errors.Is(err, ErrLarge) {
		t.Errorf("error is %v", err)
	}
	if left, err := os.ReadDir(folder); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestUninstrumentedKernel(t *testing.T) {
	err := Collector{Root: t.TempDir()}.Check()
	var u *profiling.Unsupported
	if !errors.As(err, &u) || u.Reason != profiling.NoCounters || u.Remedy == "" {
		t.Errorf("error is %v", err)
	}
}
