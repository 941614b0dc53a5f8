// SPDX-License-Identifier: Apache-2.0

package kexec

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

var content = bytes.Repeat([]byte("kernel"), 100000)

func TestCopyIsCompleteAndImmutable(t *testing.T) {
	file, digest, size, err := SealedCopy(t.Context(), "image", bytes.NewReader(content), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	sum := sha256.Sum256(content)
	if digest != "sha256:"+hex.EncodeToString(sum[:]) || size != int64(len(content)) {
		t.Errorf("digest %s, %d bytes", digest, size)
	}
	if _, err := file.Write([]byte("x")); err == nil {
		t.Error("written through the file itself")
	}
	path := fmt.Sprintf("/proc/self/fd/%d", file.Fd())
	// Root may open it for writing, but cannot write.
	again, err := os.OpenFile(path, os.O_RDWR, 0)
	if err == nil {
		_, writing := again.Write([]byte("x"))
		if !errors.Is(writing, unix.EPERM) || !errors.Is(again.Truncate(0), unix.EPERM) {
			t.Errorf("a second descriptor: write %v", writing)
		}
		if _, err := unix.Mmap(int(again.Fd()), 0, 4096, unix.PROT_WRITE, unix.MAP_SHARED); err == nil {
			t.Error("mapped for writing")
		}
		if _, err := unix.FcntlInt(again.Fd(), unix.F_ADD_SEALS, 0); !errors.Is(err, unix.EPERM) {
			t.Errorf("seals can be changed: %v", err)
		}
		_ = again.Close()
	}
	// A reader that opens the path starts at offset 0.
	reading, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(reading)
	if err != nil || !bytes.Equal(got, content) {
		t.Errorf("read %d bytes, %v", len(got), err)
	}
	_ = reading.Close()
}

func TestCopyEnds(t *testing.T) {
	if _, _, _, err := SealedCopy(t.Context(), "x", bytes.NewReader(content), int64(len(content)-1)); err == nil {
		t.Error("more than the limit")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, _, err := SealedCopy(ctx, "x", bytes.NewReader(content), 1<<20); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	before := open(t)
	for range 20 {
		if _, _, _, err := SealedCopy(t.Context(), "x", bytes.NewReader(content), 1); err == nil {
			t.Fatal("more than the limit")
		}
	}
	if after := open(t); after > before {
		t.Errorf("%d descriptors, before %d", after, before)
	}
}

func open(t *testing.T) int {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(files)
}
