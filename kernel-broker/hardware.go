// SPDX-License-Identifier: Apache-2.0

package kernelbroker

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Hardware is what decides how well a kexec works on a node, besides the kernels. Blanks and other special characters of
// the firmware's texts are dashes.
type Hardware struct {
	// Board is the machine's vendor and product.
	Board string `json:"board,omitempty"`
	// Firmware is its version.
	Firmware string `json:"firmware,omitempty"`
	// NIC is driver@vendor:device of the network adapters, joined by +.
	NIC string `json:"nic,omitempty"`
}

// DeviceReport is what a node says of its devices, for kernels that are made for it: what an emulated run can know nothing
// of. Its lists are sorted and free of duplicates, so that equal nodes differ only in their names.
type DeviceReport struct {
	Name string `json:"node"`
	// PCI devices as vendor:device in hex.
	PCI []string `json:"pci"`
	// Modaliases of all devices, as sysfs has them.
	Modaliases []string `json:"modaliases"`
	// Modules that are loaded.
	Modules []string `json:"modules"`
	// Drivers at work, built in or not, by their modules' names where the node's kernel knows.
	Drivers []string `json:"drivers"`
	// Filesystems that are mounted. A kernel can do without one that the workload writes to no byte of, but the node cannot.
	Filesystems []string `json:"filesystems"`
}

// maxHardwareText limits each of these texts.
const maxHardwareText = 128

// Validate rejects texts that no agent makes.
func (h Hardware) Validate() error {
	for _, text := range []string{h.Board, h.Firmware, h.NIC} {
		if !plainName(text, maxHardwareText) {
			return fmt.Errorf("%.80q is no board, firmware or network adapter: %w", text, ErrInvalid)
		}
	}
	return nil
}

// String names the hardware in messages.
func (h Hardware) String() string {
	if h.Board == "" {
		return "hardware that is not known"
	}
	text := h.Board
	if h.Firmware != "" {
		text += ", firmware " + h.Firmware
	}
	if h.NIC != "" {
		text += ", network " + h.NIC
	}
	return text
}

// PlainText makes a firmware's text one that Validate accepts: each run of other characters becomes a dash.
func PlainText(text string) string {
	var b strings.Builder
	for i := range len(text) {
		c := text[i : i+1]
		if !plainName("x"+c, 2) {
			c = "-"
		}
		if c != "-" || !strings.HasSuffix(b.String(), "-") {
			b.WriteString(c)
		}
	}
	return fitted(strings.Trim(strings.TrimLeft(b.String(), "-."), "-"), maxHardwareText/2)
}

// JoinAdapters is the NIC of a machine with these adapters.
func JoinAdapters(names []string) string {
	names = slices.Sorted(slices.Values(names))
	return fitted(strings.Join(slices.Compact(names), "+"), maxHardwareText)
}

// fitted cuts a text that is too long, and ends it in a digest: those that differ behind the cut stay different.
func fitted(text string, most int) string {
	if len(text) <= most {
		return text
	}
	sum := sha256.Sum256([]byte(text))
	end := "~" + hex.EncodeToString(sum[:4])
	return text[:most-len(end)] + end
}

// Way is how a node gets from one kernel to another.
type Way string

// The ways, in the order in which a return tries them.
const (
	// WaySwitch is a kexec into a profile's kernel.
	WaySwitch Way = "switch"
	// WayReturn is a kexec from a profile's kernel back to stock.
	WayReturn Way = "return"
	// WayReboot is the machine's own orderly reboot through its boot loader.
	WayReboot Way = "reboot"
	// WayReset is a reset or power cycle from outside.
	WayReset Way = "reset"
)

// BootTimes are the phases of one boot; negative: not known.
type BootTimes struct {
	// Load is fetching, checking and loading the kernel.
	Load time.Duration
	// Stop is stopping slurmd and syncing disks.
	Stop time.Duration
	// Shutdown is from there to the next kernel's start: services, devices, and the firmware if it takes part.
	Shutdown time.Duration
	// Start is from the next kernel's start to its agent's report.
	Start time.Duration
}

// UnknownTimes are those of a boot that were not seen.
func UnknownTimes() BootTimes { return BootTimes{-1, -1, -1, -1} }

// Total is the sum of the phases; negative if one is not known.
func (b BootTimes) Total() time.Duration {
	if b.Load < 0 || b.Stop < 0 || b.Shutdown < 0 || b.Start < 0 {
		return -1
	}
	return b.Load + b.Stop + b.Shutdown + b.Start
}

// Phases names the phases, in order, with their times.
func (b BootTimes) Phases() []Phased {
	return []Phased{{"load", b.Load}, {"stop", b.Stop}, {"shutdown", b.Shutdown}, {"start", b.Start}, {"total", b.Total()}}
}

// Phased is the time of one phase.
type Phased struct {
	Phase string
	Took  time.Duration
}

// Try is one boot that was begun, and what became of it.
type Try struct {
	Node     string
	Hardware Hardware
	// Kernel is the profile's kernel that was booted or left.
	Kernel Ref
	Way    Way
	OK     bool
	Cause  string // of a failure
	At     time.Time
	Times  BootTimes
}
