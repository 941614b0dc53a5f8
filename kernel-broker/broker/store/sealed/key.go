// SPDX-License-Identifier: Apache-2.0

package sealed

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/atomicfile"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/safeopen"
)

const (
	keyBytes = 32
	maxFile  = 4096
)

// key is what a key file has: 32 bytes, in one line of hexadecimal digits.
type key struct {
	aead cipher.AEAD
	// id names the key and tells nothing of it.
	id string
}

func newKey(secret []byte) (*key, error) {
	block, err := aes.NewCipher(secret)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(append([]byte("kernel-broker store key\x00"), secret...))
	return &key{aead, hex.EncodeToString(sum[:8])}, nil
}

// readKey refuses a file that others can read: it is no secret any more.
func readKey(path string) (*key, error) {
	text, err := safeopen.Read(path, maxFile, func(info fs.FileInfo) error {
		if mode := info.Mode().Perm(); mode&0o077 != 0 {
			return fmt.Errorf("%s: others may read it (mode %04o): chmod 600: %w", path, mode, kb.ErrDenied)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("store_key_file: %w", err)
	}
	secret, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(secret) != keyBytes {
		return nil, fmt.Errorf("store_key_file: %s is not one line of %d hexadecimal digits: copy it again from another broker's host: %w", path, 2*keyBytes, kb.ErrInvalid)
	}
	return newKey(secret)
}

// MakeKey writes a new key file. It replaces none: the error is fs.ErrExist then.
func MakeKey(path string) error {
	secret := make([]byte, keyBytes)
	rand.Read(secret)
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = atomicfile.WriteNew(path, []byte(hex.EncodeToString(secret)+"\n"), 0o600)
	}
	if err != nil {
		return fmt.Errorf("store_key_file: %w", err)
	}
	return nil
}

// KeyID names the key of a file.
func KeyID(path string) (string, error) {
	k, err := readKey(path)
	if err != nil {
		return "", err
	}
	return k.id, nil
}

func (k *key) seal(name string, secret []byte) []byte {
	return k.aead.Seal(nil, nil, secret, []byte(name)) //nolint:gosec // G407: this AEAD makes its nonces itself
}

var errSeal = errors.New("it is damaged, or was moved here from another record")

func (k *key) open(name string, sealed []byte) ([]byte, error) {
	secret, err := k.aead.Open(nil, nil, sealed, []byte(name))
	if err != nil {
		return nil, errSeal // the library's error says nothing more
	}
	return secret, nil
}
