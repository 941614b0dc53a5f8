// SPDX-License-Identifier: Apache-2.0

// Package digest writes SHA-256 digests as records and catalogs have them:
// "sha256:" and 64 hex digits.
package digest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Text of a finished hash.
func Text(sum hash.Hash) string { return "sha256:" + hex.EncodeToString(sum.Sum(nil)) }

// Of content in memory.
func Of(content []byte) string {
	sum := sha256.Sum256(content)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// Copy copies until the source ends, and returns digest and size of what it copied. Between two reads it ends with its
// context.
func Copy(ctx context.Context, to io.Writer, from io.Reader) (digest string, size int64, err error) {
	sum := sha256.New()
	if size, err = io.Copy(io.MultiWriter(to, sum), reader{ctx, from}); err != nil {
		return "", size, err
	}
	return Text(sum), size, nil
}

type reader struct {
	ctx  context.Context
	from io.Reader
}

func (r reader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.from.Read(p)
}

// File returns digest and size of a file.
func File(path string) (digest string, size int64, err error) {
	file, err := os.Open(path)
	if err != nil {
		return "", 0, err
	}
	defer func() { _ = file.Close() }() // only read from
	if digest, size, err = Copy(context.Background(), io.Discard, file); err != nil {
		return "", 0, fmt.Errorf("%s: %w", path, err)
	}
	return digest, size, nil
}

// Tree is the digest of a folder: the name of everything below it, what it is, whether it may be run, and its bytes. Times
// and owners have no part in it.
func Tree(dir string) (string, error) {
	sum := sha256.New()
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
			return fmt.Errorf("%q: %w", name, err)
		}
		_, err = fmt.Fprintf(sum, "%q %s\n", filepath.ToSlash(name), line)
		return err
	})
	if err != nil {
		return "", err
	}
	return Text(sum), nil
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
		line, _, err := File(path)
		if info.Mode()&0o100 != 0 {
			line += " program"
		}
		return "file " + line, err
	}
	return "", fmt.Errorf("neither a file, a folder nor a link (%s)", entry.Type())
}
