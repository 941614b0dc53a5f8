// Package boot does what a switch of kernels consists of: artifacts into the
// cache, digests checked, image loaded, machine booted. Each step can be done
// again. The digests are checked right before every load, because the tools load
// a truncated or damaged image without a word and the node then hangs.
package boot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	kernelbroker "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/cmdline"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/decide"
)

// Errors of this package. What wraps neither these nor ErrUnavailable is the
// node's fault.
var (
	// ErrKernel: the kernel is at fault, not the node.
	ErrKernel = errors.New("the kernel cannot be used")
	// ErrDamaged: an artifact in the cache is not what it was; fetch it again.
	ErrDamaged = errors.New("damaged in the cache")
)

// Artifacts is the cache.
type Artifacts interface {
	// Keep protects these artifacts from eviction, and no others any more.
	Keep(digests ...string) error
	// Ensure fetches an artifact unless it is there. Errors wrap ErrKernel
	// when the artifact cannot be had from anywhere, ErrUnavailable when
	// trying later may help.
	Ensure(ctx context.Context, digest string, size uint64) error
	// Verify reads the whole artifact and compares; ErrDamaged when it is
	// not there or not right, and then the next Ensure fetches it.
	Verify(ctx context.Context, digest string) error
	// Path of the artifact's file.
	Path(digest string) (string, error)
}

// Tools loads and boots.
type Tools interface {
	Load(ctx context.Context, image, initrd, commandLine string) error
	Unload(ctx context.Context) error
	Execute(ctx context.Context) error
}

// Booter does the steps, one at a time.
type Booter struct {
	Artifacts Artifacts
	Tools     Tools
	// Keep names the parameters that belong to the node.
	Keep cmdline.Keep
	// Initrd is the node's own; a kernel that brings one uses that alone.
	Initrd string
	// Proc is where procfs is mounted.
	Proc string
	// BadImage tells an error of the tools that is the image's fault.
	BadImage error
}

// Fetch brings the target's artifacts into the cache.
func (b *Booter) Fetch(ctx context.Context, t decide.Target) error {
	digests := []string{t.Kernel.ImageDigest}
	if t.Kernel.InitrdDigest != "" {
		digests = append(digests, t.Kernel.InitrdDigest)
	}
	if err := b.Artifacts.Keep(digests...); err != nil {
		return fmt.Errorf("kernel %q: %w", t.Kernel.Ref(), err)
	}
	if err := b.Artifacts.Ensure(ctx, t.Kernel.ImageDigest, t.Kernel.ImageSize); err != nil {
		return fmt.Errorf("image of kernel %q: %w", t.Kernel.Ref(), err)
	}
	if t.Kernel.InitrdDigest == "" {
		return nil
	}
	if err := b.Artifacts.Ensure(ctx, t.Kernel.InitrdDigest, t.Kernel.InitrdSize); err != nil {
		return fmt.Errorf("initrd of kernel %q: %w", t.Kernel.Ref(), err)
	}
	return nil
}

// Load checks the digests and loads the target.
func (b *Booter) Load(ctx context.Context, t decide.Target) error {
	line, err := b.commandLine(t)
	if err != nil {
		return fmt.Errorf("kernel %q: %w", t.Kernel.Ref(), err)
	}
	image, err := b.verified(ctx, t.Kernel.ImageDigest)
	if err != nil {
		return fmt.Errorf("image of kernel %q: %w", t.Kernel.Ref(), err)
	}
	initrd := b.Initrd
	if t.Kernel.InitrdDigest != "" {
		if initrd, err = b.verified(ctx, t.Kernel.InitrdDigest); err != nil {
			return fmt.Errorf("initrd of kernel %q: %w", t.Kernel.Ref(), err)
		}
	}
	err = b.Tools.Load(ctx, image, initrd, line)
	if b.BadImage != nil && errors.Is(err, b.BadImage) {
		return fmt.Errorf("kernel %q: %w: %w", t.Kernel.Ref(), ErrKernel, err)
	}
	if err != nil {
		return fmt.Errorf("kernel %q: %w", t.Kernel.Ref(), err)
	}
	return nil
}

func (b *Booter) commandLine(t decide.Target) (string, error) {
	running, err := os.ReadFile(filepath.Join(b.Proc, "cmdline"))
	if err != nil {
		return "", err
	}
	line, err := cmdline.Compose(string(running), b.Keep, t.Kernel.Arguments, t.Token)
	if errors.Is(err, kernelbroker.ErrInvalid) || errors.Is(err, kernelbroker.ErrPrecluded) {
		return "", fmt.Errorf("%w: %w", ErrKernel, err)
	}
	return line, err
}

func (b *Booter) verified(ctx context.Context, digest string) (string, error) {
	if err := b.Artifacts.Verify(ctx, digest); err != nil {
		return "", err
	}
	return b.Artifacts.Path(digest)
}

// Unload takes out what is loaded.
func (b *Booter) Unload(ctx context.Context) error { return b.Tools.Unload(ctx) }

// Execute boots what is loaded; it returns only when that failed.
func (b *Booter) Execute(ctx context.Context) error { return b.Tools.Execute(ctx) }
