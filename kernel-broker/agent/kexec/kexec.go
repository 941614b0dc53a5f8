// SPDX-License-Identifier: Apache-2.0

// Package kexec brings a node to another kernel: artifacts into the cache, signatures and digests checked, the command
// line composed, the image loaded and booted with kexec-tools. It does not rely on the tools' exit status: a kernel counts
// as loaded only if the running kernel reports it.
package kexec

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// Bounds of the steps. Loading reads the whole image and initrd, slowly so on
// an emulated machine.
const (
	loadTimeout   = 2 * time.Minute
	unloadTimeout = 20 * time.Second
	maxOutput     = 4 << 10
)

// Errors of the tools.
var (
	// errImage: the tools do not recognise the file as a kernel.
	errImage = errors.New("not a bootable image")
	// errReturned: the machine still runs after the boot command.
	errReturned = errors.New("the machine did not boot the loaded kernel")
	// ErrSignature: the running kernel refused the image.
	ErrSignature = errors.New("the running kernel is locked down and trusts no key that signed the image (PE signature)")
)

// Kexec runs the program. It must not be used concurrently.
type Kexec struct {
	Program     string
	LoadArgs    []string
	ExecuteArgs []string
	// Sys is where sysfs is mounted.
	Sys string
	// NetworkRoot: the node's root is on the network. The program takes the network down before it boots, and would wait
	// for its root then.
	NetworkRoot bool
	Shutdown
}

// Loaded reports whether the kernel holds a loaded image.
func (k Kexec) Loaded() (bool, error) {
	raw, err := os.ReadFile(filepath.Join(k.Sys, "kernel/kexec_loaded"))
	if err != nil {
		return false, fmt.Errorf("kexec is not available: %w", err)
	}
	return strings.TrimSpace(string(raw)) == "1", nil
}

// Load loads an image and, unless nil, an initrd, replacing a loaded image. The program gets open files instead of
// names, so it reads exactly what the caller has checked. A locked-down kernel is asked to verify the image's own
// signature.
func (k Kexec) Load(ctx context.Context, image, initrd *os.File, commandLine string) error {
	files := []*os.File{image}
	args := []string{"-l", inherited(0), "--command-line=" + commandLine}
	if initrd != nil {
		files = append(files, initrd)
		args = append(args, "--initrd="+inherited(1))
	}
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	if err := k.asLocked(func(locked bool) error {
		return k.run(ctx, append(k.loadArgs(locked), args...), files...)
	}); err != nil {
		return err
	}
	loaded, err := k.Loaded()
	if err != nil {
		return err
	}
	if !loaded {
		return fmt.Errorf("program %q loaded %q without error, but the kernel holds no image: %w",
			k.Program, image.Name(), kb.ErrFailedPrecondition)
	}
	return nil
}

// inherited is the path by which the program finds an inherited file.
func inherited(n int) string {
	const first = 3 // behind the standard ones
	return fmt.Sprintf("/proc/self/fd/%d", first+n)
}

// Unload removes the loaded image.
func (k Kexec) Unload(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, unloadTimeout)
	defer cancel()
	if err := k.asLocked(func(locked bool) error {
		if locked {
			return k.run(ctx, []string{"-s", "-u"}) // the other system call is refused for this too
		}
		return k.run(ctx, []string{"-u"})
	}); err != nil {
		return err
	}
	loaded, err := k.Loaded()
	if err == nil && loaded {
		err = fmt.Errorf("program %q unloaded without error, but the kernel still holds an image: %w",
			k.Program, kb.ErrFailedPrecondition)
	}
	return err
}

// Execute boots the loaded image and returns only on failure. Kexec itself has no time limit, since a boot cannot be cancelled.
func (k Kexec) Execute(ctx context.Context) error {
	if len(k.Command) > 0 {
		return k.execute(ctx)
	}
	args := slices.Clone(k.ExecuteArgs)
	if k.NetworkRoot {
		args = append(args, "--no-ifdown")
	}
	if err := k.run(ctx, append(args, "-e")); err != nil {
		return fmt.Errorf("%w: %w", errReturned, err)
	}
	return errReturned
}

// run gives the program its own session, so that a signal to the agent's group does not interrupt it.
func (k Kexec) run(ctx context.Context, args []string, files ...*os.File) error {
	cmd := exec.CommandContext(ctx, k.Program, args...) //nolint:gosec // G204: the configured program, no shell; arguments are checked by the domain
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.WaitDelay = time.Second
	cmd.ExtraFiles = files
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	err := cmd.Run()
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return fmt.Errorf("program %q: %w: %w", k.Program, ctx.Err(), err)
	}
	text := strings.TrimSpace(output.String())
	if len(text) > maxOutput {
		text = text[:maxOutput]
	}
	switch {
	case strings.Contains(text, "Cannot determine the file type"):
		err = fmt.Errorf("%w: %w", errImage, err)
	case forbidden(text):
		err = fmt.Errorf("%w: %w", errForbidden, err)
	case refusedBySignature(text):
		err = fmt.Errorf("%w: %w", ErrSignature, err)
	case strings.Contains(text, "Device or resource busy"):
		// Another load is in progress: a killed agent had started it.
		err = fmt.Errorf("%w: %w", kb.ErrUnavailable, err)
	}
	if text == "" {
		return fmt.Errorf("program %q: %w", k.Program, err)
	}
	return fmt.Errorf("program %q: %w: %s", k.Program, err, strings.Join(strings.Fields(text), " "))
}
