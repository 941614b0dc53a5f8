// SPDX-License-Identifier: Apache-2.0

package kexec

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	digests "github.com/kernelbroker/kernelbroker/kernel-broker/internal/digest"
)

// seals forbid every change and the removal of seals.
const seals = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE

// SealedCopy copies a file into memory that can never be changed. Between the check of a kernel and its load, a path can
// come to mean another file, and a file can change. So the bytes are checked while they are copied to memory that no
// process, including the agent, can write, and that copy is loaded by its open file.
//
// It reads source to its end and returns the copy, open for reading only, with its digest ("sha256:...") and
// size. More than limit bytes are an error. The caller closes the file, which frees the memory.
func SealedCopy(ctx context.Context, name string, source io.Reader, limit int64) (file *os.File, digest string, size int64, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("sealed copy of %q: %w", name, err)
		}
	}()
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, "", 0, fmt.Errorf("memfd_create: %w", err)
	}
	writable := os.NewFile(uintptr(fd), name)
	if digest, size, err = fill(ctx, writable, source, limit); err == nil {
		// kexec_file_load refuses a file that is open for writing, so reopen it for reading.
		file, err = os.Open(fmt.Sprintf("/proc/self/fd/%d", fd))
	}
	if closing := writable.Close(); closing != nil && err == nil {
		err = errors.Join(closing, file.Close())
	}
	if err != nil {
		return nil, "", 0, err
	}
	return file, digest, size, nil
}

// fill copies and seals.
func fill(ctx context.Context, to *os.File, source io.Reader, limit int64) (digest string, size int64, err error) {
	if digest, size, err = digests.Copy(ctx, to, io.LimitReader(source, limit+1)); err != nil {
		return "", 0, err
	}
	if size > limit {
		return "", 0, fmt.Errorf("more than %d bytes", limit)
	}
	if _, err := unix.FcntlInt(to.Fd(), unix.F_ADD_SEALS, seals); err != nil {
		return "", 0, fmt.Errorf("seals: %w", err)
	}
	return digest, size, nil
}
