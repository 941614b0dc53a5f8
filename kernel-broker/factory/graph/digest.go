// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/digest"
)

// keyFormat changes when results of old keys are no longer what the same inputs
// would give.
const keyFormat = 1

// key is the digest of all that a step's result depends on.
func key(step *Step, needs map[string]Result) (string, error) {
	digests := map[string]string{}
	for as, result := range needs {
		digests[as] = result.Digest
	}
	return ValueDigest(map[string]any{
		"format": keyFormat, "kind": step.Kind, "inputs": step.Inputs, "needs": digests,
	})
}

// ValueDigest is the digest of a value in JSON, in hex. Maps are sorted by it.
func ValueDigest(value any) (string, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return "", fmt.Errorf("digest: %w", err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}

// FileDigest is the digest of a file's bytes, "sha256:" and hex.
func FileDigest(path string) (string, error) {
	text, _, err := digest.File(path)
	return text, err
}

// TreeDigest is the digest of a folder: the name of everything below it, what
// it is, whether it may be run, and its bytes. Times and owners have no part in
// it, as they do not distinguish results.
func TreeDigest(dir string) (string, error) {
	hash := sha256.New()
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		line, err := describe(path, entry)
		if err != nil {
			return fmt.Errorf("result %q: %w", name, err)
		}
		_, err = fmt.Fprintf(hash, "%q %s\n", filepath.ToSlash(name), line)
		return err
	})
	if err != nil {
		return "", err
	}
	return digest.Text(hash), nil
}

// describe says in a line what a file is. WalkDir goes in the order of names.
func describe(path string, entry fs.DirEntry) (string, error) {
	switch entry.Type() {
	case fs.ModeDir:
		return "folder", nil
	case fs.ModeSymlink:
		target, err := os.Readlink(path)
		return fmt.Sprintf("link %q", target), err
	case 0:
		info, err := entry.Info()
		if err != nil {
			return "", err
		}
		digest, err := FileDigest(path)
		if info.Mode()&0o100 != 0 {
			digest += " program"
		}
		return "file " + digest, err
	}
	return "", fmt.Errorf("neither a file, a folder nor a link (%s)", entry.Type())
}

// treeSize is the size of all files in a folder.
func treeSize(dir string) (bytes int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		info, err := entry.Info()
		if err == nil {
			bytes += info.Size()
		}
		return err
	})
	return bytes, err
}

// syncTo brings all that was written to a folder's file system to the disk.
func syncTo(dir string) error {
	folder, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(int(folder.Fd())), folder.Close())
}
