// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"fmt"
	"io/fs"
	"path"
	"strings"
)

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
