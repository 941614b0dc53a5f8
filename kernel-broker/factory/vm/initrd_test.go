// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"bytes"
	"crypto/md5"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func digest(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	sum := md5.Sum(data)
	return hex.EncodeToString(sum[:])
}

func write(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// listing is what another program finds in the archive.
func listing(t *testing.T, archive string) string {
	t.Helper()
	file, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	cmd := exec.Command("cpio", "-itv", "--quiet")
	cmd.Stdin = file
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil || complaint.Len() > 0 {
		t.Fatalf("cpio: %v: %s", err, complaint.String())
	}
	return string(out)
}

func TestInitrd(t *testing.T) {
	dir := t.TempDir()
	module := write(t, filepath.Join(dir, "one.ko"), "module")
	root := Root{
		Script:  "true",
		Modules: []string{module},
		Files: []File{
			{Path: "/bin/program", Source: "/bin/ls"},
			{Path: "/bin/sed", Content: []byte("not busybox"), Mode: 0o755},
			{Path: "/var/spool/empty", Mode: os.ModeDir | 0o700},
			{Path: "/srv/link", Link: "/etc/passwd"},
		},
	}
	one, two := filepath.Join(dir, "one"), filepath.Join(dir, "two")
	for _, path := range []string{one, two} {
		if err := BuildInitrd(t.Context(), root, path); err != nil {
			t.Fatal(err)
		}
	}
	if digest(t, one) != digest(t, two) {
		t.Error("the same root gave two archives")
	}
	list := listing(t, one)
	for _, want := range []string{
		" init\n", " script\n", " usr/bin/program\n", " usr/lib/x86_64-linux-gnu/libc.so.6\n",
		" usr/lib64/ld-linux-x86-64.so.2\n", " bin -> usr/bin\n", " usr/bin/cat -> busybox\n",
		" modules/one.ko\n", " modules/order\n", " usr/bin/sed\n", " srv/link -> /etc/passwd\n", "drwx------",
	} {
		if !strings.Contains(list, want) {
			t.Errorf("%q is not in the archive", want)
		}
	}
	if left, err := filepath.Glob(filepath.Join(dir, ".*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

func TestInitrdRefuses(t *testing.T) {
	dir := t.TempDir()
	cases := map[string]struct {
		root Root
		want string
	}{
		"no script":     {Root{Script: " \n"}, "no script"},
		"relative path": {Root{Script: "true", Files: []File{{Path: "etc/x"}}}, `"etc/x": not an absolute path`},
		"a folder's link": {
			Root{Script: "true", Files: []File{{Path: "/bin"}}}, "this is a link into /usr"},
		"one path twice": {
			Root{Script: "true", Files: []File{{Path: "/bin/x"}, {Path: "/usr/bin/x"}}}, "is there twice"},
		"no such source": {
			Root{Script: "true", Files: []File{{Path: "/x", Source: filepath.Join(dir, "nothing")}}}, "no such file"},
		"folder as source": {
			Root{Script: "true", Files: []File{{Path: "/x", Source: dir}}}, "is no regular file"},
		"module twice": {
			Root{Script: "true", Modules: []string{"a/x.ko", "b/x.ko"}}, `module "x.ko" is there twice`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			err := BuildInitrd(t.Context(), c.root, filepath.Join(dir, "out"))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error is %v, want %q", err, c.want)
			}
		})
	}
}

func TestLibrariesOfAnUnpackedSystemComeFirst(t *testing.T) {
	dir := t.TempDir()
	mine := write(t, filepath.Join(dir, "lib/x86_64-linux-gnu/libc.so.6"), "not the host's")
	c := newClosure([]string{dir})
	if err := c.add("usr/bin/ls", "/bin/ls"); err != nil {
		t.Fatal(err)
	}
	if got := c.files["usr/lib/x86_64-linux-gnu/libc.so.6"]; got != mine {
		t.Errorf("libc is %q of %v", got, c.files)
	}
	if c.files["usr/lib/x86_64-linux-gnu/"+opened] == "" {
		t.Errorf("%s is not among %v", opened, c.files)
	}
	c = newClosure(nil)
	if _, _, err := c.find("libnowhere.so.9", "/usr/bin", nil); err == nil {
		t.Error("a library that does not exist was found")
	}
	guest, _, err := c.find("libc.so.6", "/opt/app/bin", []string{"$ORIGIN/../lib", "relative"})
	if err != nil || guest != "usr/lib/x86_64-linux-gnu/libc.so.6" {
		t.Errorf("libc is at %q, %v", guest, err)
	}
}
