// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"encoding/binary"
	"fmt"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/build"
)

// Places in the setup header, from the x86 boot protocol.
const (
	atBootFlag    = 0x1fe // 0xAA55
	atMagic       = 0x202 // HdrS
	atVersion     = 0x206
	atLoadFlags   = 0x211
	atRelocatable = 0x234
	atXLoadFlags  = 0x236
	atCmdlineSize = 0x238
	atInitSize    = 0x260
	headerEnd     = 0x264

	bootFlag      = 0xaa55
	leastProtocol = 0x020c // 2.12: flags for the 64-bit entry
	loadedHigh    = 0x01   // of loadflags: a bzImage, not a zImage
	kernel64      = 0x01   // of xloadflags
	// leastCmdline is what the agent's command lines may need: the node's own
	// arguments, the profile's and the token.
	leastCmdline = 2047
	// mostMemory that a kernel may ask for to unpack itself.
	mostMemory = 1 << 30
)

// CheckHeader refuses what kexec-tools cannot boot as a 64-bit bzImage, and
// what the agent could not use.
func CheckHeader(image []byte) error {
	little := binary.LittleEndian
	if len(image) < headerEnd || little.Uint16(image[atBootFlag:]) != bootFlag || string(image[atMagic:atMagic+4]) != "HdrS" {
		return fmt.Errorf("no bzImage: %s: %w", build.WhatIs(image), kb.ErrInvalid)
	}
	protocol, memory := little.Uint16(image[atVersion:]), little.Uint32(image[atInitSize:])
	wrong := ""
	switch length := little.Uint32(image[atCmdlineSize:]); {
	case protocol < leastProtocol:
		wrong = fmt.Sprintf("boot protocol %d.%02d is older than 2.12", protocol>>8, protocol&0xff)
	case image[atLoadFlags]&loadedHigh == 0:
		wrong = "a zImage, which is loaded low; a bzImage is needed"
	case image[atRelocatable] == 0:
		wrong = "not relocatable (CONFIG_RELOCATABLE): kexec has to load it beside the running kernel"
	case little.Uint16(image[atXLoadFlags:])&kernel64 == 0:
		wrong = "no 64-bit entry: not an x86_64 kernel"
	case length < leastCmdline:
		wrong = fmt.Sprintf("takes a command line of %d bytes, %d are needed", length, leastCmdline)
	case memory > mostMemory:
		wrong = fmt.Sprintf("asks for %d bytes to unpack itself, at most %d", memory, mostMemory)
	default:
		return nil
	}
	return fmt.Errorf("%s: %w", wrong, kb.ErrInvalid)
}
