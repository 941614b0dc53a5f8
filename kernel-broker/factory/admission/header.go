// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"bytes"
	"debug/pe"
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

// Header is what the setup header of a bootable image says.
type Header struct {
	Protocol     uint16
	CommandLine  uint32
	UnpackedSize uint32
	// PESigned: it carries a PE signature, as kexec_file_load asks for where
	// the running kernel is locked down. Whose it is, is not looked at.
	PESigned bool
}

// CheckHeader refuses what kexec-tools cannot boot as a 64-bit bzImage, and
// what the agent could not use.
func CheckHeader(image []byte) (Header, error) {
	fail := func(format string, args ...any) (Header, error) {
		return Header{}, fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), kb.ErrInvalid)
	}
	little := binary.LittleEndian
	if len(image) < headerEnd || little.Uint16(image[atBootFlag:]) != bootFlag || string(image[atMagic:atMagic+4]) != "HdrS" {
		return fail("no bzImage: %s", build.WhatIs(image))
	}
	h := Header{
		Protocol: little.Uint16(image[atVersion:]), CommandLine: little.Uint32(image[atCmdlineSize:]),
		UnpackedSize: little.Uint32(image[atInitSize:]), PESigned: peSigned(image),
	}
	switch {
	case h.Protocol < leastProtocol:
		return fail("boot protocol %d.%02d is older than 2.12", h.Protocol>>8, h.Protocol&0xff)
	case image[atLoadFlags]&loadedHigh == 0:
		return fail("a zImage, which is loaded low; a bzImage is needed")
	case image[atRelocatable] == 0:
		return fail("not relocatable (CONFIG_RELOCATABLE): kexec has to load it beside the running kernel")
	case little.Uint16(image[atXLoadFlags:])&kernel64 == 0:
		return fail("no 64-bit entry: not an x86_64 kernel")
	case h.CommandLine < leastCmdline:
		return fail("takes a command line of %d bytes, %d are needed", h.CommandLine, leastCmdline)
	case h.UnpackedSize > mostMemory:
		return fail("asks for %d bytes to unpack itself, at most %d", h.UnpackedSize, mostMemory)
	}
	return h, nil
}

// peSigned looks into the PE header that the EFI stub gives an image.
func peSigned(image []byte) bool {
	file, err := pe.NewFile(bytes.NewReader(image))
	if err != nil {
		return false
	}
	header, is := file.OptionalHeader.(*pe.OptionalHeader64)
	if !is || header.NumberOfRvaAndSizes <= pe.IMAGE_DIRECTORY_ENTRY_SECURITY {
		return false
	}
	entry := header.DataDirectory[pe.IMAGE_DIRECTORY_ENTRY_SECURITY]
	begin, size := uint64(entry.VirtualAddress), uint64(entry.Size)
	return begin > 0 && size > 8 && begin+size <= uint64(len(image))
}
