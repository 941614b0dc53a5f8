// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/cpio"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/atomicfile"
)

//go:embed files/init.sh
var initScript []byte

// busybox is the guest's userland; it has to be the static one, since it is
// there before any library is.
const busybox = "/bin/busybox"

// The places of what every guest has.
const (
	scriptPlace  = "script"
	modulesPlace = "modules"
	boxPlace     = "usr/bin/busybox"
)

// entry is what stands at one place of the archive.
type entry struct {
	mode    int // kind and permissions
	source  string
	content []byte
	device  cpio.Number
}

// tree is the archive's content, by place.
type tree map[string]entry

// BuildInitrd writes the root file system as an uncompressed initramfs, which
// boots fastest. The same root gives the same bytes. The file is at its path
// only when it is whole.
func BuildInitrd(ctx context.Context, root Root, path string) error {
	return atomicfile.Fill(path, 0o600, func(file *os.File) error {
		buffered := bufio.NewWriterSize(file, 1<<20)
		return errors.Join(WriteInitrd(ctx, root, buffered), buffered.Flush())
	})
}

// WriteInitrd writes what BuildInitrd makes, for who wants its digest.
func WriteInitrd(ctx context.Context, root Root, to io.Writer) error {
	all, err := plant(ctx, root)
	if err == nil {
		err = all.write(ctx, to)
	}
	if err != nil {
		return fmt.Errorf("initrd: %w", err)
	}
	return nil
}

// plant puts together what the archive holds.
func plant(ctx context.Context, root Root) (tree, error) {
	if strings.TrimSpace(root.Script) == "" {
		return nil, errors.New("no script")
	}
	script := root.Script
	if !strings.HasPrefix(script, "#!") {
		script = "#!/usr/bin/busybox sh\n" + script
	}
	all := tree{
		"init":        {mode: cpio.File | 0o755, content: initScript},
		scriptPlace:   {mode: cpio.File | 0o755, content: []byte(script)},
		"dev/console": {mode: cpio.Device | 0o600, device: cpio.Number{Major: 5, Minor: 1}},
		"dev/null":    {mode: cpio.Device | 0o666, device: cpio.Number{Major: 1, Minor: 3}},
		"etc/passwd":  {mode: cpio.File | 0o644, content: []byte(passwd)},
		"etc/group":   {mode: cpio.File | 0o644, content: []byte(group)},
		"etc/hosts":   {mode: cpio.File | 0o644, content: []byte("127.0.0.1 localhost\n")},
	}
	for _, folder := range merged {
		all[folder] = entry{mode: cpio.Link | 0o777, content: []byte("usr/" + folder)}
		all["usr/"+folder] = entry{mode: 0o755 | cpio.Folder}
	}
	for _, folder := range []string{"proc", "sys", "tmp", "run", "out", "root", "var/log", "var/lib", "mnt", modulesPlace} {
		all[folder] = entry{mode: cpio.Folder | 0o755}
	}
	if err := all.applets(ctx); err != nil {
		return nil, err
	}
	if err := all.modules(root.Modules); err != nil {
		return nil, err
	}
	return all, all.files(root)
}

const (
	passwd = "root:x:0:0:root:/root:/bin/sh\nwww-data:x:33:33::/:/bin/false\nnobody:x:65534:65534::/:/bin/false\n" //nolint:gosec // G101: users of a guest, without passwords
	group  = "root:x:0:\nadm:x:4:\nwww-data:x:33:\nnogroup:x:65534:\n"
)

// applets adds busybox under each of its names.
func (t tree) applets(ctx context.Context) error {
	list, err := exec.CommandContext(ctx, busybox, "--list").Output()
	if err != nil {
		return fmt.Errorf("busybox: %w", err)
	}
	t[boxPlace] = entry{mode: cpio.File | 0o755, source: busybox}
	for name := range strings.FieldsSeq(string(list)) {
		if at := "usr/bin/" + name; at != boxPlace {
			t[at] = entry{mode: cpio.Link | 0o777, content: []byte("busybox")}
		}
	}
	return nil
}

func (t tree) modules(paths []string) error {
	var order bytes.Buffer
	for _, source := range paths {
		name := path.Base(source)
		if _, twice := t[modulesPlace+"/"+name]; twice {
			return fmt.Errorf("module %q is there twice", name)
		}
		t[modulesPlace+"/"+name] = entry{mode: cpio.File | 0o644, source: source}
		fmt.Fprintln(&order, name)
	}
	t[modulesPlace+"/order"] = entry{mode: cpio.File | 0o644, content: order.Bytes()}
	return nil
}

// files adds the root's own files, which win over busybox's, and libraries.
func (t tree) files(root Root) error {
	libraries := newClosure(root.Libraries)
	own := map[string]bool{}
	for _, file := range root.Files {
		at, err := place(file.Path)
		if err != nil {
			return err
		}
		if own[at] {
			return fmt.Errorf("file %q is there twice", file.Path)
		}
		own[at] = true
		if t[at], err = file.entry(); err != nil {
			return fmt.Errorf("file %q: %w", file.Path, err)
		}
		if file.Source == "" {
			continue
		}
		if err := libraries.add(at, file.Source); err != nil {
			return err
		}
	}
	for at, host := range libraries.files {
		if !own[at] {
			t[at] = entry{mode: cpio.File | 0o755, source: host}
		}
	}
	return nil
}

func (f File) entry() (entry, error) {
	switch {
	case f.Link != "":
		return entry{mode: cpio.Link | 0o777, content: []byte(f.Link)}, nil
	case f.Mode.IsDir():
		return entry{mode: cpio.Folder | int(f.Mode.Perm())}, nil
	case f.Source == "":
		return entry{mode: cpio.File | int(cmp.Or(f.Mode.Perm(), 0o644)), content: f.Content}, nil
	}
	info, err := os.Stat(f.Source)
	if err != nil {
		return entry{}, err
	}
	if !info.Mode().IsRegular() {
		return entry{}, fmt.Errorf("%s is no regular file", f.Source)
	}
	otherwise := fs.FileMode(0o644)
	if info.Mode().Perm()&0o100 != 0 {
		otherwise = 0o755
	}
	return entry{mode: cpio.File | int(cmp.Or(f.Mode.Perm(), otherwise)), source: f.Source}, nil
}

// write puts the tree out, folders before what is in them.
func (t tree) write(ctx context.Context, to io.Writer) error {
	for at := range t {
		for dir := path.Dir(at); dir != "."; dir = path.Dir(dir) {
			if _, there := t[dir]; !there {
				t[dir] = entry{mode: cpio.Folder | 0o755}
			}
		}
	}
	out := cpio.NewWriter(to)
	for _, name := range slices.Sorted(maps.Keys(t)) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := t[name].write(out, name); err != nil {
			return err
		}
	}
	return out.Close()
}

func (e entry) write(out *cpio.Writer, name string) error {
	if e.source == "" {
		return out.Add(name, e.mode, int64(len(e.content)), bytes.NewReader(e.content), e.device)
	}
	file, err := os.Open(e.source)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // only read from
	info, err := file.Stat()
	if err != nil {
		return err
	}
	return out.Add(name, e.mode, info.Size(), file, cpio.Number{})
}

// Root is what a guest finds: busybox with all its applets, the files named
// here, and the script.
type Root struct {
	// Files are copied or made. A dynamic program brings the libraries it
	// needs; what it opens later by itself has to be named.
	Files []File
	// Script is run by busybox's shell as a child of /init, or by what its
	// first line names; its exit code is the guest's. What it leaves below /out
	// comes out of the guest.
	Script string
	// Modules are kernel modules on the host, inserted in this order.
	Modules []string
	// Libraries are folders that hold an unpacked system (with lib, usr/lib in
	// it); libraries are looked for there before the host's own.
	Libraries []string
}

// File is one entry: a copy of a file on the host, or a link, or content.
type File struct {
	// Path in the guest, absolute. /bin, /sbin, /lib and /lib64 are links into
	// /usr, as on Debian.
	Path string
	// Mode is 0755 for a copy of a program, else 0644, when it is 0. With
	// fs.ModeDir it is an empty folder.
	Mode fs.FileMode
	// Source is a file on the host, Link what a symbolic link points at; if
	// both are empty the file is made of Content.
	Source  string
	Link    string
	Content []byte
}

// merged are the folders that Debian keeps below /usr.
var merged = []string{"bin", "sbin", "lib", "lib64"}

// place gives the path below the guest's root, without a leading slash, with
// the links of a merged /usr followed.
func place(name string) (string, error) {
	clean := strings.TrimPrefix(path.Clean(name), "/")
	if !path.IsAbs(name) || clean == "" {
		return "", fmt.Errorf("file %q: not an absolute path", name)
	}
	first, _, _ := strings.Cut(clean, "/")
	for _, folder := range merged {
		if first == folder {
			if clean == folder {
				return "", fmt.Errorf("file %q: this is a link into /usr", name)
			}
			return "usr/" + clean, nil
		}
	}
	return clean, nil
}
