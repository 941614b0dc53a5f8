// SPDX-License-Identifier: Apache-2.0

package kexec

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/signing"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/digest"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/safeopen"
)

// Verifier decides on the node which kernels it boots: it checks each kernel against the list of keys that root put on
// the node, and remembers version floors, which prevents rollbacks. A nil Verifier lets all through.
//
// The pure checks are in package signing. The verifier supplies the list, read each time, so that a revocation counts at
// once; the memory, which only rises and is on disk before a kernel is loaded; and the files of the node's distribution,
// which need no signature. Errors that do not wrap ErrKernel are the node's fault: an unreadable list or memory.
type Verifier struct {
	// List is the path of the trust list.
	List string
	// State is the path of the node's memory.
	State string
	// Required: untrusted kernels are refused. Otherwise they are only logged.
	Required bool
	// Stock are patterns of the distribution's kernels and initrds on this node, which may be booted as stock without a
	// signature.
	Stock []string
	// Now is the time.
	Now func() time.Time
	Log *slog.Logger
}

// Allow reports whether the kernel may be booted. It changes nothing.
func (v *Verifier) Allow(ctx context.Context, k kb.Kernel, envelope []byte) error {
	_, err := v.verify(ctx, k, envelope)
	return err
}

// Admit is Allow directly before a load or a boot: it writes the manifest's floors to disk before the kernel can run.
func (v *Verifier) Admit(ctx context.Context, k kb.Kernel, envelope []byte) error {
	verified, err := v.verify(ctx, k, envelope)
	if err != nil || verified == nil {
		return err
	}
	memory, err := readMemory(v.State)
	if err != nil {
		return err
	}
	learned, news := memory.Learn(verified.Manifest, v.Now())
	if news {
		if err := writeMemory(v.State, learned); err != nil {
			return err
		}
	}
	v.Log.Info("signature verified", "kernel", k.Ref().String(), "key", verified.Key.Name, "key_id", verified.Key.ID,
		"made", verified.Manifest.Made, "expires", verified.Manifest.Expires, "floor", learned.Floors[k.Profile])
	return nil
}

// verify returns what was verified; nil if the kernel needs no signature.
func (v *Verifier) verify(ctx context.Context, k kb.Kernel, envelope []byte) (*signing.Verified, error) {
	if v == nil {
		return nil, nil
	}
	list, err := signing.ReadTrust(v.List, ownOnly(v.List))
	if err != nil {
		return nil, err
	}
	memory, err := readMemory(v.State)
	if err != nil {
		return nil, err
	}
	verified, err := signing.Verify(envelope, list, k, memory, v.Now())
	if err == nil {
		return &verified, nil
	}
	if errors.Is(err, signing.ErrUnsigned) && k.Ref().IsStock() {
		own, wrong := v.isDistributions(ctx, k, list)
		if wrong != nil {
			return nil, wrong
		}
		if own {
			return nil, nil
		}
	}
	if !v.Required {
		v.Log.Warn("booting an untrusted kernel: require_signatures is off", "kernel", k.Ref().String(), "error", err)
		return nil, nil
	}
	return nil, fmt.Errorf("%w: refused by the node's trust list: %w", ErrKernel, err)
}

// isDistributions reports whether the kernel is, byte for byte, one of the distribution's on this node, with an empty
// command line.
func (v *Verifier) isDistributions(ctx context.Context, k kb.Kernel, list signing.Trust) (bool, error) {
	if len(k.Arguments) > 0 {
		return false, nil
	}
	var missing []string
	for _, file := range k.Files() {
		missing = append(missing, file.Digest)
	}
	if slices.ContainsFunc(missing, func(d string) bool { return slices.Contains(list.RevokedDigests, d) }) {
		return false, nil
	}
	for _, pattern := range v.Stock {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			return false, fmt.Errorf("pattern %q: %w", pattern, err)
		}
		for _, path := range paths {
			digest, err := digestOf(ctx, path)
			if err != nil {
				return false, err
			}
			if missing = slices.DeleteFunc(missing, func(d string) bool { return d == digest }); len(missing) == 0 {
				return true, nil
			}
		}
	}
	return false, nil
}

func digestOf(ctx context.Context, path string) (string, error) {
	file, info, err := safeopen.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = file.Close() }() // only read from
	if err := ownOnly(path)(info); err != nil {
		return "", err
	}
	stop := context.AfterFunc(ctx, func() { _ = file.Close() })
	defer stop()
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return "", fmt.Errorf("file %q: %w", path, err)
	}
	return digest.Text(sum), nil
}

// ownOnly rejects a file that users other than root and the current user can write.
func ownOnly(path string) func(os.FileInfo) error {
	return func(info os.FileInfo) error {
		stat, ok := info.Sys().(*syscall.Stat_t)
		switch {
		case !ok:
			return fmt.Errorf("file %q: no owner is to be seen: %w", path, kb.ErrFailedPrecondition)
		case stat.Uid != 0 && stat.Uid != uint32(os.Geteuid()):
			return fmt.Errorf("file %q belongs to uid %d, not to root: %w", path, stat.Uid, kb.ErrFailedPrecondition)
		case info.Mode().Perm()&0o022 != 0:
			return fmt.Errorf("file %q can be written by others (mode %04o); chmod go-w: %w", path, info.Mode().Perm(), kb.ErrFailedPrecondition)
		}
		return nil
	}
}
