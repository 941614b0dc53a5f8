// SPDX-License-Identifier: Apache-2.0

// Package digest writes SHA-256 digests as records and catalogs have them:
// "sha256:" and 64 hex digits.
package digest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"os"
)

// Text of a finished hash.
func Text(sum hash.Hash) string { return "sha256:" + hex.EncodeToString(sum.Sum(nil)) }

// Of content in memory.
func Of(content []byte) string {
	sum := sha256.Sum256(content)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// File returns digest and size of a file.
func File(path string) (digest string, size int64, err error) {
	file, err := os.Open(path)
	if err != nil {
		return "", 0, err
	}
	defer func() { _ = file.Close() }() // only read from
	sum := sha256.New()
	if size, err = io.Copy(sum, file); err != nil {
		return "", 0, fmt.Errorf("%s: %w", path, err)
	}
	return Text(sum), size, nil
}
