// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// A trust list that is a pipe keeps neither the start nor a registration waiting,
// and one without end fills no memory.
func TestATrustListThatIsNoFile(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	large := filepath.Join(t.TempDir(), "large")
	if err := os.WriteFile(large, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(large, 1<<40); err != nil { // all of it a hole
		t.Skip(err)
	}
	for path, words := range map[string]string{pipe: "is no regular file", "/dev/zero": "is no regular file", large: "has more than 1048576 bytes"} {
		_, err := newSignatureCheck(config{TrustList: path}, slog.New(slog.DiscardHandler))
		if !errors.Is(err, kb.ErrInvalid) || !strings.Contains(err.Error(), "trust list: "+path+" "+words) {
			t.Errorf("%s: %v", path, err)
		}
	}
}
