// SPDX-License-Identifier: Apache-2.0

package link

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// A token's file that is a pipe does not keep the agent from renewing.
func TestTokenIsNoRegularFile(t *testing.T) {
	dir := t.TempDir()
	pipe, large := filepath.Join(dir, "pipe"), filepath.Join(dir, "large")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(large, make([]byte, maxTokenFile+1), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, words := range map[string]string{pipe: "is no regular file", "/dev/zero": "is no regular file", large: "has more than 4096 bytes"} {
		if _, err := readToken(path); !errors.Is(err, kb.ErrInvalid) || !strings.Contains(err.Error(), "token: "+path+" "+words) {
			t.Errorf("%s: %v", path, err)
		}
	}
}
