// SPDX-License-Identifier: Apache-2.0

package emulated

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
)

// Kernel is a kernel for a node: an image of two lines, its build id and its release, which suffice for the emulated
// kexec.
type Kernel struct{ Name, Release, BuildID string }

// StockName is the kernel of the nodes' firmware, and its profile.
const StockName = "stock"

// KernelNamed is the kernel of that name.
func KernelNamed(name string) Kernel {
	sum := sha256.Sum256([]byte(name))
	return Kernel{Name: name, Release: "6.1.0-" + name, BuildID: hex.EncodeToString(sum[:20])}
}

func (k Kernel) image() string { return k.BuildID + "\n" + k.Release + "\n" }

// note is the content of /sys/kernel/notes: the build id in an ELF note.
func (k Kernel) note() ([]byte, error) {
	id, err := hex.DecodeString(k.BuildID)
	if err != nil {
		return nil, fmt.Errorf("kernel %q: build id: %w", k.Name, err)
	}
	head := []byte{4, 0, 0, 0, byte(len(id)), 0, 0, 0, 3, 0, 0, 0, 'G', 'N', 'U', 0}
	return append(head, id...), nil
}

// WriteKernel puts a kernel into the cluster's catalog, where profiles find it.
func (c *Cluster) WriteKernel(k Kernel) error {
	dir := c.path("catalog/kernels", k.Name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("kernel %q: %w", k.Name, err)
	}
	sum := sha256.Sum256([]byte(k.image()))
	manifest, err := json.Marshal(map[string]any{
		"format": 1, "name": k.Name, "release": k.Release, "build_id": k.BuildID, "architecture": "x86_64",
		"image":   map[string]any{"name": "bzImage", "digest": "sha256:" + hex.EncodeToString(sum[:]), "size": len(k.image())},
		"drivers": map[string]any{"builtin": []string{"virtio_net"}}, "filesystems": map[string]any{"builtin": []string{"ext4"}},
	})
	if err != nil {
		return fmt.Errorf("kernel %q: %w", k.Name, err)
	}
	if err := write(dir+"/bzImage", k.image(), 0o644); err != nil {
		return err
	}
	// What it would have to be built with, for profiles with system cores and for collectors.
	if err := write(dir+"/config", "CONFIG_CPU_ISOLATION=y\nCONFIG_DEBUG_INFO_BTF=y\nCONFIG_NO_HZ_FULL=y\nCONFIG_RCU_NOCB_CPU=y\nCONFIG_SMP=y\n", 0o644); err != nil {
		return err
	}
	return write(dir+"/kernel.json", string(manifest), 0o644)
}

// writeCatalog makes the kernels of the options, with a profile each.
func (c *Cluster) writeCatalog() error {
	if err := os.MkdirAll(c.path("catalog/profiles"), 0o755); err != nil {
		return fmt.Errorf("catalog: %w", err)
	}
	for _, name := range append([]string{StockName}, c.options.Kernels...) {
		if err := c.WriteKernel(KernelNamed(name)); err != nil {
			return err
		}
		if err := write(c.path("catalog/profiles", name+".yaml"), profileText(name, name), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func profileText(name, kernel string) string {
	return fmt.Sprintf(`name: %s
application: %s
description: An emulated kernel
default_version: 1
versions:
  - version: 1
    kernel: %s
    arguments: []
requires:
  architecture: x86_64
reuse: same-profile
fallback: hold
boot_attempts: 2
boot_timeout: 2m
`, name, name, kernel)
}
