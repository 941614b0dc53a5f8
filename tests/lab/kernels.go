// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Kernel is a kernel that a node's firmware boots.
type Kernel struct {
	Name    string `json:"name"`
	Release string `json:"release"`
	Image   string `json:"image"`
	// Modules is the folder with the kernel's modules; a kernel that has one
	// needs an initrd, a slim kernel has neither.
	Modules string `json:"modules,omitempty"`
	Initrd  string `json:"initrd,omitempty"`
}

// findKernel finds a built kernel by name. Debian's own is downloaded if missing.
func findKernel(ctx context.Context, o Options, cache string) (Kernel, error) {
	dir := filepath.Join(o.Kernels, o.Kernel)
	k, err := kernelIn(dir)
	if errors.Is(err, fs.ErrNotExist) && o.Kernel == "stock" {
		dir, err = downloadDebian(ctx, cache)
		if err == nil {
			k, err = kernelIn(dir)
		}
	}
	if err != nil {
		return Kernel{}, fmt.Errorf("kernel %q: %w", o.Kernel, err)
	}
	k.Name = o.Kernel
	return k, nil
}

// kernelIn reads a folder with bzImage and perhaps modules.
func kernelIn(dir string) (Kernel, error) {
	k := Kernel{Image: filepath.Join(dir, "bzImage")}
	image, err := os.ReadFile(k.Image)
	if err != nil {
		return Kernel{}, fmt.Errorf("image: %w", err)
	}
	if k.Release, err = bzImageRelease(image); err != nil {
		return Kernel{}, fmt.Errorf("image %q: %w", k.Image, err)
	}
	modules := filepath.Join(dir, "modules")
	if st, err := os.Stat(modules); err == nil && st.IsDir() {
		k.Modules = modules
	}
	return k, nil
}

// bzImageRelease reads the release string that the boot protocol's header
// points to.
func bzImageRelease(image []byte) (string, error) {
	const magicAt, pointerAt, base = 0x202, 0x20e, 0x200
	if len(image) < 0x1000 || !bytes.Equal(image[magicAt:magicAt+4], []byte("HdrS")) {
		return "", errors.New("not a bzImage")
	}
	at := base + int(binary.LittleEndian.Uint16(image[pointerAt:]))
	if at >= len(image) {
		return "", errors.New("bzImage names no release")
	}
	text, _, _ := bytes.Cut(image[at:min(at+256, len(image))], []byte{0})
	release, _, _ := strings.Cut(string(text), " ")
	if release == "" {
		return "", errors.New("bzImage names no release")
	}
	return release, nil
}

// downloadDebian unpacks the distribution's current kernel into the cache.
func downloadDebian(ctx context.Context, cache string) (string, error) {
	out, err := exec.CommandContext(ctx, "apt-cache", "depends", "linux-image-amd64").Output()
	if err != nil {
		return "", fmt.Errorf("package linux-image-amd64: %w", err)
	}
	pkg := ""
	for _, line := range strings.Split(string(out), "\n") {
		if f := strings.Fields(line); len(f) == 2 && f[0] == "Depends:" && strings.HasPrefix(f[1], "linux-image-") {
			pkg = f[1]
			break
		}
	}
	if pkg == "" {
		return "", errors.New("package linux-image-amd64 depends on no kernel (apt-get update?)")
	}
	final := filepath.Join(cache, "kernels", pkg)
	if _, err := os.Stat(filepath.Join(final, "bzImage")); err == nil {
		return final, nil
	}
	return final, unpackDebian(ctx, pkg, final)
}

func unpackDebian(ctx context.Context, pkg, final string) error {
	if err := os.MkdirAll(filepath.Dir(final), 0o755); err != nil {
		return fmt.Errorf("cache: %w", err)
	}
	tmp, err := os.MkdirTemp(filepath.Dir(final), "."+pkg+"-")
	if err != nil {
		return fmt.Errorf("cache: %w", err)
	}
	defer os.RemoveAll(tmp)
	script := `set -e; cd "$1"; apt-get -q download "$2"; dpkg-deb -x ./*.deb root
mkdir out; mv root/boot/vmlinuz-* out/bzImage; mv root/lib/modules out/modules; chmod 755 out`
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", script, "sh", tmp, pkg)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("package %q: %w: %s", pkg, err, bytes.TrimSpace(out))
	}
	if err := os.Rename(filepath.Join(tmp, "out"), final); err != nil {
		// Another lab may have been faster; its copy is equivalent.
		if _, there := os.Stat(filepath.Join(final, "bzImage")); there == nil {
			return nil
		}
		return fmt.Errorf("cache: %w", err)
	}
	return nil
}
