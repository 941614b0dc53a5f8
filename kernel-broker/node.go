package kernelbroker

import (
	"fmt"
	"slices"
	"time"
)

// Inventory is what a node reports of the hardware that a kernel must drive.
type Inventory struct {
	Architecture   string   `json:"architecture"`
	MemoryMiB      uint64   `json:"memory_mib"`
	CPUs           uint32   `json:"cpus"`
	RootDevice     string   `json:"root_device"`
	RootFilesystem string   `json:"root_filesystem"`
	Drivers        []string `json:"drivers"`
}

// CheckFits refuses a kernel that cannot run a node with this inventory. The
// error wraps ErrPrecluded and names what is missing.
func (k Kernel) CheckFits(inventory Inventory) error {
	fail := func(format string, args ...any) error {
		return fmt.Errorf("kernel %q: %s: %w", k.Ref(), fmt.Sprintf(format, args...), ErrPrecluded)
	}
	if k.Architecture != inventory.Architecture {
		return fail("is for %s, the node is %s", k.Architecture, inventory.Architecture)
	}
	if inventory.MemoryMiB < k.MinMemoryMiB {
		return fail("asks for %d MiB of memory, the node has %d MiB", k.MinMemoryMiB, inventory.MemoryMiB)
	}
	for _, driver := range inventory.Drivers {
		if !slices.Contains(k.Drivers, driver) {
			return fail("has no driver %s, which the node needs for its root, disk or network", driver)
		}
	}
	return nil
}

// Boot is what a node says it runs.
type Boot struct {
	BootID   string    `json:"boot_id"`
	BuildID  string    `json:"build_id"`
	Release  string    `json:"release"`
	Token    string    `json:"token,omitempty"`
	BootedAt time.Time `json:"booted_at"`
}

// Proof is a boot that the broker holds for proven: this node runs that kernel.
type Proof struct {
	Ref     Ref    `json:"ref"`
	BootID  string `json:"boot_id"`
	BuildID string `json:"build_id"`
	Release string `json:"release"`
}
