// SPDX-License-Identifier: Apache-2.0

package kexec

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/decide"
)

// Errors of a Booter. What wraps neither these nor ErrUnavailable is the
// node's fault.
var (
	// ErrKernel: the kernel is at fault, not the node.
	ErrKernel = errors.New("the kernel cannot be used")
	// ErrDamaged: an artifact in the cache is not what it was; fetch it again.
	ErrDamaged = errors.New("damaged in the cache")
)

// Artifacts is the cache; *Cache is one.
type Artifacts interface {
	// Keep protects these artifacts from eviction, and no others any more.
	Keep(digests ...string)
	// Ensure fetches an artifact unless it is there. Errors wrap ErrKernel
	// when the artifact cannot be had from anywhere, ErrUnavailable when
	// trying later may help.
	Ensure(ctx context.Context, digest string, size uint64) error
	// Sealed returns a copy of the artifact that was compared with its digest
	// and that nobody can change; ErrDamaged when it is not there or not
	// right, and then the next Ensure fetches it. The caller closes it.
	Sealed(ctx context.Context, digest string, size uint64) (*os.File, error)
}

// Trust decides which kernels the node boots; *Verifier is one. Errors wrap
// ErrKernel when the kernel is at fault.
type Trust interface {
	Allow(ctx context.Context, k kb.Kernel, envelope []byte) error
	// Admit is Allow right before a load or a boot; it may record what it saw.
	Admit(ctx context.Context, k kb.Kernel, envelope []byte) error
}

// Tools loads and boots; Kexec is one.
type Tools interface {
	// Load takes open files; initrd may be nil.
	Load(ctx context.Context, image, initrd *os.File, commandLine string) error
	// Unload removes what is loaded.
	Unload(ctx context.Context) error
	// Prepare does what the site wants done before a boot; errors wrap ErrNotPrepared.
	Prepare(ctx context.Context) error
	// Execute boots what is loaded; it returns only when that failed.
	Execute(ctx context.Context) error
}

// Booter does the steps of a switch, one at a time: artifacts into the cache, trust and digests checked, image loaded,
// machine booted. Each step can be repeated. Nothing is fetched that the node does not trust, and trust is checked again
// right before every load, and once more before the boot, which may come long after. What is loaded are sealed copies
// whose digests were checked as they were made: the tools load a truncated or damaged image without an error, and between
// a check and a load by name a file can change.
type Booter struct {
	Tools
	Artifacts Artifacts
	Trust     Trust
	// Keep names the parameters that belong to the node.
	Keep Keep
	// Initrd is the node's own; a kernel that brings one uses that alone.
	Initrd string
	// Proc is where procfs is mounted.
	Proc string
	// Topology reads the cores of the node.
	Topology func() (kb.Topology, error)
}

// Fetch brings the target's artifacts into the cache.
func (b *Booter) Fetch(ctx context.Context, t decide.Target) error {
	if err := b.Trust.Allow(ctx, t.Kernel, t.Envelope); err != nil {
		return err
	}
	var digests []string
	for _, file := range t.Kernel.Files() {
		digests = append(digests, file.Digest)
	}
	b.Artifacts.Keep(digests...)
	for _, file := range t.Kernel.Files() {
		if err := b.Artifacts.Ensure(ctx, file.Digest, file.Size); err != nil {
			return fmt.Errorf("%s of kernel %q: %w", file.What, t.Kernel.Ref(), err)
		}
	}
	return nil
}

// Load checks digests and trust, and loads the target.
func (b *Booter) Load(ctx context.Context, t decide.Target) (err error) {
	line, err := b.commandLine(t)
	if err != nil {
		return fmt.Errorf("kernel %q: %w", t.Kernel.Ref(), err)
	}
	image, err := b.Artifacts.Sealed(ctx, t.Kernel.ImageDigest, t.Kernel.ImageSize)
	if err != nil {
		return fmt.Errorf("image of kernel %q: %w", t.Kernel.Ref(), err)
	}
	defer func() { err = errors.Join(err, image.Close()) }()
	initrd, err := b.initrd(ctx, t.Kernel)
	if err != nil {
		return fmt.Errorf("initrd of kernel %q: %w", t.Kernel.Ref(), err)
	}
	if initrd != nil {
		defer func() { err = errors.Join(err, initrd.Close()) }()
	}
	if err := b.Admit(ctx, t); err != nil {
		return err
	}
	err = b.Tools.Load(ctx, image, initrd, line)
	if errors.Is(err, errImage) || errors.Is(err, ErrSignature) {
		return fmt.Errorf("kernel %q: %w: %w", t.Kernel.Ref(), ErrKernel, err)
	}
	if err != nil {
		return fmt.Errorf("kernel %q: %w", t.Kernel.Ref(), err)
	}
	return nil
}

// Admit asks whether the node trusts the target: before the load, and once more
// before the boot.
func (b *Booter) Admit(ctx context.Context, t decide.Target) error {
	return b.Trust.Admit(ctx, t.Kernel, t.Envelope)
}

// initrd is the one that the kernel brings, or the node's own; nil for none.
func (b *Booter) initrd(ctx context.Context, k kb.Kernel) (*os.File, error) {
	switch {
	case k.InitrdDigest != "":
		return b.Artifacts.Sealed(ctx, k.InitrdDigest, k.InitrdSize)
	case b.Initrd != "":
		return os.Open(b.Initrd)
	}
	return nil, nil
}

func (b *Booter) commandLine(t decide.Target) (string, error) {
	running, err := os.ReadFile(filepath.Join(b.Proc, "cmdline"))
	if err != nil {
		return "", err
	}
	own, err := b.cores(t.Kernel)
	if err != nil {
		return "", err
	}
	if k := t.Kernel; k.ModulesDigest != "" {
		own = append(own, fmt.Sprintf("%s=%s,%d", kb.ModulesParameter, k.ModulesDigest, k.ModulesSize))
	}
	line, err := compose(string(running), b.Keep, t.Kernel.Arguments, own, t.Token)
	if errors.Is(err, kb.ErrInvalid) || errors.Is(err, kb.ErrFailedPrecondition) {
		return "", fmt.Errorf("%w: %w", ErrKernel, err)
	}
	return line, err
}

// cores composes the arguments of a kernel with system cores from the node's own topology, so that no list of CPUs comes from
// outside the node.
func (b *Booter) cores(k kb.Kernel) ([]string, error) {
	if k.SystemCores == 0 {
		return nil, nil
	}
	topology, err := b.Topology()
	if err != nil {
		return nil, fmt.Errorf("cores of the node: %w", err)
	}
	split, err := topology.Split(k.SystemCores)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKernel, err)
	}
	return split.Arguments(), nil
}
