// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/vm"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

func TestRoot(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"kbmark", "some"} {
		write(t, filepath.Join(dir, name), name)
	}
	w, err := Parse("some.yaml", []byte(good+"setup: prepare\ncheck: look\nconfig: {/etc/some: text}\ntools: [/bin/ls]\n"))
	if err != nil {
		t.Fatal(err)
	}
	root, err := w.Root(t.Context(), Places{Programs: dir}, w.Test, "", Hooks{Before: "reset", After: "dump"})
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]vm.File{}
	for _, file := range root.Files {
		files[file.Path] = file
	}
	for path, want := range map[string]string{
		"/workload/setup": "prepare", "/workload/before": "reset", "/workload/run": "some",
		"/workload/after": "dump", "/workload/check": "look", "/etc/some": "text",
	} {
		if got := string(files[path].Content); got != want {
			t.Errorf("%s is %q, want %q", path, got, want)
		}
	}
	for path, want := range map[string]string{
		"/usr/bin/some": filepath.Join(dir, "some"), "/usr/bin/kbmark": filepath.Join(dir, "kbmark"), "/bin/ls": "/bin/ls",
	} {
		if got := files[path].Source; got != want {
			t.Errorf("%s is a copy of %q, want %q", path, got, want)
		}
	}
	if !strings.Contains(root.Script, "KB_SEED=2 KB_SIZE=20 KB_CPUS=1") {
		t.Errorf("script is %s", root.Script)
	}
	last := -1
	for _, part := range []string{"setup", "before", "run", "after", "check"} {
		at := strings.Index(root.Script, "sh -e /workload/"+part+" ")
		if at <= last {
			t.Errorf("%s is at %d, after %d", part, at, last)
		}
		last = at
	}
	w.Programs = append(w.Programs, "absent")
	_, err = w.Root(t.Context(), Places{Programs: dir}, w.Test, "", Hooks{})
	if !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), `program "absent" is not built`) {
		t.Errorf("error is %v", err)
	}
}

func TestFilesOfPackages(t *testing.T) {
	one, two := t.TempDir(), t.TempDir()
	write(t, filepath.Join(one, "usr/share/app/data"), "one")
	write(t, filepath.Join(two, "usr/share/app/data"), "two")
	write(t, filepath.Join(two, "usr/bin/app"), "two")
	if err := os.Symlink("data", filepath.Join(one, "usr/share/app/link")); err != nil {
		t.Fatal(err)
	}
	files, err := find([]string{one, two}, "/usr/share/app")
	if err != nil {
		t.Fatal(err)
	}
	want := []vm.File{
		{Path: "/usr/share/app", Mode: fs.ModeDir | 0o755},
		{Path: "/usr/share/app/data", Source: filepath.Join(one, "usr/share/app/data")},
		{Path: "/usr/share/app/link", Link: "data"},
	}
	if !reflect.DeepEqual(files, want) {
		t.Errorf("files are %+v", files)
	}
	files, err = find([]string{one, two}, "/usr/bin/app")
	if err != nil || len(files) != 1 || files[0].Source != filepath.Join(two, "usr/bin/app") {
		t.Errorf("files are %+v, %v", files, err)
	}
	if _, err := find([]string{one, two}, "/usr/bin/absent"); err == nil || !strings.Contains(err.Error(), "none of the packages") {
		t.Errorf("error is %v", err)
	}
}

func TestModules(t *testing.T) {
	dir := t.TempDir()
	release := filepath.Join(dir, "lib/modules/6.1.0")
	write(t, filepath.Join(release, "modules.dep"),
		"kernel/fs/ext4/ext4.ko: kernel/fs/jbd2/jbd2.ko kernel/lib/crc16.ko\nkernel/fs/jbd2/jbd2.ko:\n"+
			"kernel/lib/crc16.ko:\nkernel/net/nine.ko:\nkernel/crypto/crc32c_generic.ko:\n")
	write(t, filepath.Join(dir, "load-order"),
		"kernel/net/nine.ko\nkernel/crypto/crc32c_generic.ko\nkernel/lib/crc16.ko\nkernel/fs/jbd2/jbd2.ko\nkernel/fs/ext4/ext4.ko\n")
	got, err := pickModules(dir, []string{"ext4", "crc32c-generic", "built_in"})
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, name := range []string{"crypto/crc32c_generic.ko", "lib/crc16.ko", "fs/jbd2/jbd2.ko", "fs/ext4/ext4.ko"} {
		want = append(want, filepath.Join(release, "kernel", name))
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("modules are %v", got)
	}
	for _, empty := range []string{"", t.TempDir()} {
		if got, err := pickModules(empty, []string{"ext4"}); err != nil || got != nil {
			t.Errorf("modules of a kernel without them: %v, %v", got, err)
		}
	}
	write(t, filepath.Join(dir, "lib/modules/6.2.0/modules.dep"), "")
	if _, err := pickModules(dir, []string{"ext4"}); err == nil || !strings.Contains(err.Error(), "2 releases") {
		t.Errorf("error is %v", err)
	}
}

func TestOutcome(t *testing.T) {
	w := Workload{Name: "some"}
	dir := t.TempDir()
	put := func(name, text string) { write(t, filepath.Join(dir, name), text) }
	put("mitigations", "meltdown: Mitigation: PTI\nspectre_v1: Mitigation: barriers\n")
	put("regions", "1 first 20\n2 second 5\n")
	got, err := w.Outcome(vm.Result{Files: dir})
	want := Outcome{
		Regions:     []Region{{1, "first", 20}, {2, "second", 5}},
		Mitigations: []string{"meltdown: Mitigation: PTI", "spectre_v1: Mitigation: barriers"},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("outcome is %+v, %v", got, err)
	}
	put("output", strings.Repeat("early\n", 40)+"the last word\n")
	_, err = w.Outcome(vm.Result{Files: dir, ExitCode: exitCheck})
	var failed *FailedError
	if !errors.As(err, &failed) || failed.Part != "check" || !strings.HasSuffix(failed.Output, "\nthe last word") {
		t.Errorf("error is %v", err)
	}
	_, err = w.Outcome(vm.Result{Files: dir, ExitCode: 127})
	if !errors.As(err, &failed) || failed.Part != "script (exit code 127)" {
		t.Errorf("error is %v", err)
	}
	for text, want := range map[string]string{
		"":               "regions: none",
		"1 first\n":      `regions:1: "1 first" is not`,
		"64 first 1\n":   `regions:1: marker "64"`,
		"0 first 1\n":    `regions:1: marker "0"`,
		"1 a 1\n2 b 0\n": `regions:2: "0" operations`,
		"1 a x\n":        `regions:1: "x" operations`,
	} {
		put("regions", text)
		if _, err := w.Outcome(vm.Result{Files: dir}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error is %v, want %q", text, err, want)
		}
	}
}

func TestIdentityOfAPackage(t *testing.T) {
	said := "'http://some.host/one_1.0_amd64.deb' one_1.0_amd64.deb 100 SHA256:aa\n" +
		"'http://some.host/one-more_1.0_amd64.deb' one-more_1.0_amd64.deb 100 SHA256:bb\n"
	one, err := identity(said, "one")
	if err != nil || !strings.HasPrefix(one, "one-") {
		t.Fatalf("identity is %q, %v", one, err)
	}
	elsewhere, err := identity(strings.ReplaceAll(said, "some.host", "other.host"), "one")
	if err != nil || elsewhere != one {
		t.Errorf("the same package from elsewhere is %q, %v", elsewhere, err)
	}
	for _, change := range []string{"one_1.1", "SHA256:ab"} {
		from := map[string]string{"one_1.1": " one_1.0", "SHA256:ab": "SHA256:aa"}[change]
		other, err := identity(strings.Replace(said, from, " "+change, 1), "one")
		if err != nil || other == one {
			t.Errorf("%s has the identity %q, %v", change, other, err)
		}
	}
	if _, err := identity(said, "two"); err == nil {
		t.Error("a package that apt does not know has an identity")
	}
}
