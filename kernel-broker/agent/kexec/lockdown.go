// SPDX-License-Identifier: Apache-2.0

package kexec

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Locked reports whether the running kernel is locked down, as under Secure Boot: kexec_load is then refused, and
// kexec_file_load accepts only images with a PE signature by a key of the kernel or the firmware. Without the file, the
// kernel has no lockdown or securityfs is not mounted; then only the load itself shows what is allowed.
func (k Kexec) Locked() (bool, error) {
	raw, err := os.ReadFile(filepath.Join(k.Sys, "kernel/security/lockdown"))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("lockdown: %w", err)
	}
	// [none] integrity confidentiality
	_, level, _ := strings.Cut(string(raw), "[")
	level, _, found := strings.Cut(level, "]")
	if !found {
		return false, fmt.Errorf("lockdown: no level in %q", strings.TrimSpace(string(raw)))
	}
	return level != "none", nil
}

// errForbidden: the running kernel refuses kexec_load.
var errForbidden = errors.New("the running kernel refuses kexec_load")

// forbidden recognises the messages of lockdown, of IMA under Secure Boot, and of a kernel with CONFIG_KEXEC_FILE and without CONFIG_KEXEC.
// kexec prints the C library's words for an error, which begin with a capital.
func forbidden(text string) bool {
	text = strings.ToLower(text)
	for _, what := range []string{"kexec_load failed: ", "kexec unload failed: "} {
		for _, why := range []syscall.Errno{syscall.EPERM, syscall.EACCES, syscall.ENOSYS} {
			if strings.Contains(text, what+why.Error()) {
				return true
			}
		}
	}
	return false
}

// asLocked calls do in the way that the running kernel allows. Where only a try shows it, it tries both.
func (k Kexec) asLocked(do func(locked bool) error) error {
	locked, err := k.Locked()
	if err != nil {
		return err
	}
	if err = do(locked); locked || !errors.Is(err, errForbidden) {
		return err
	}
	if again := do(true); again != nil {
		return errors.Join(again, err)
	}
	return nil
}

// loadArgs are those configured; where the kernel is locked down with the
// system call that checks signatures.
func (k Kexec) loadArgs(locked bool) []string {
	args := slices.Clone(k.LoadArgs)
	if !locked {
		return args
	}
	args = slices.DeleteFunc(args, func(arg string) bool {
		return slices.Contains([]string{"-c", "--kexec-syscall", "-a", "--kexec-syscall-auto", "-s", "--kexec-file-syscall"}, arg)
	})
	return append(args, "-s")
}

// refusedBySignature recognises the errors of kexec_file_load for an unsigned image or an unknown key.
func refusedBySignature(text string) bool {
	if !strings.Contains(text, "kexec_file_load failed") {
		return false
	}
	for _, words := range []string{
		"Operation not permitted", "Permission denied", "Required key not available", "Key was rejected by service",
		"No data available", "Bad message", "Key has been revoked",
	} {
		if strings.Contains(text, words) {
			return true
		}
	}
	return false
}
