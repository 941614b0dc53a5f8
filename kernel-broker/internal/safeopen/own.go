// SPDX-License-Identifier: Apache-2.0

package safeopen

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// OwnTree returns the path without links of a folder that nobody but this process's user and root can change: not the folder,
// nothing in it, and no folder above it. A default that is looked for in the current folder is used only if it is such one: root may
// stand in a user's folder.
func OwnTree(dir string) (string, error) { return ownTree(dir, os.Geteuid()) }

func ownTree(dir string, user int) (string, error) {
	link, err := os.Lstat(dir)
	if err != nil {
		return "", err
	}
	if link.Mode()&fs.ModeSymlink != 0 {
		if err := owned(dir, link, user); err != nil {
			return "", err
		}
	}
	real, err := filepath.Abs(dir)
	if err == nil {
		real, err = filepath.EvalSymlinks(real)
	}
	if err != nil {
		return "", err
	}
	for above := real; above != "/"; {
		above = filepath.Dir(above)
		info, err := os.Lstat(above)
		if err == nil {
			err = own(above, info, user, fs.ModeSticky)
		}
		if err != nil {
			return "", err
		}
	}
	return real, filepath.WalkDir(real, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.Type()&fs.ModeSymlink != 0 {
			return fmt.Errorf("%s is a link, whose end may be another user's: %w", path, kb.ErrFailedPrecondition)
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		return own(path, info, user, 0)
	})
}

// own refuses what another user than root owns or may write, except a folder with the mode, such as /tmp with its sticky bit: what is
// in it only its owner replaces.
func own(path string, info os.FileInfo, user int, except fs.FileMode) error {
	if err := owned(path, info, user); err != nil {
		return err
	}
	if mode := info.Mode(); mode.Perm()&0o022 != 0 && mode&except == 0 {
		return fmt.Errorf("%s is writable by its group or by all (chmod go-w): %w", path, kb.ErrFailedPrecondition)
	}
	return nil
}

func owned(path string, info os.FileInfo, user int) error {
	if by, is := info.Sys().(*syscall.Stat_t); !is || by.Uid != 0 && int(by.Uid) != user {
		return fmt.Errorf("%s belongs to user %d: %w", path, by.Uid, kb.ErrFailedPrecondition)
	}
	return nil
}
