// SPDX-License-Identifier: Apache-2.0

package build

import (
	"strings"
	"testing"
)

func TestWhatIs(t *testing.T) {
	elf := func(class, order byte, low, high byte) string {
		return "\x7fELF" + string([]byte{class, order}) + strings.Repeat("\x00", 12) + string([]byte{low, high}) + strings.Repeat("\x00", 700)
	}
	for name, c := range map[string]struct{ data, words string }{
		"vmlinux":         {elf(2, 1, 62, 0), "arch/x86/boot/bzImage (make bzImage)"},
		"ARM64 vmlinux":   {elf(2, 1, 183, 0), "ELF file for ARM64; nodes are x86_64"},
		"big endian":      {elf(2, 2, 0, 21), "ELF file for PowerPC"},
		"some machine":    {elf(2, 1, 99, 9), "ELF file for machine"},
		"ELF cut":         {"\x7fELF\x02", "5 bytes"},
		"ARM64 Image":     {"MZ" + strings.Repeat("\x00", 0x36) + "ARM\x64" + strings.Repeat("\x00", 700), "an ARM64 kernel (Image)"},
		"ARM zImage":      {strings.Repeat("\x00", 0x24) + "\x18\x28\x6f\x01" + strings.Repeat("\x00", 700), "an ARM kernel (zImage)"},
		"uImage":          {"\x27\x05\x19\x56" + strings.Repeat("\x00", 700), "uImage"},
		"Debian package":  {"!<arch>\ndebian-binary" + strings.Repeat("\x00", 700), "dpkg-deb -x"},
		"initrd":          {"070701" + strings.Repeat("0", 700), "--initrd"},
		"compressed":      {"\x1f\x8b" + strings.Repeat("\x00", 700), "gzip -d"},
		"EFI program":     {"MZ" + strings.Repeat("\x00", 700), "unified kernel image"},
		"nothing":         {"", "it is empty"},
		"a few bytes":     {"#!/bin/sh\n", "10 bytes"},
		"something else":  {strings.Repeat("x", 4096), "/boot/vmlinuz-RELEASE"},
		"a header's part": {"MZ" + strings.Repeat("\x00", 0x200) + "HdrS", "fewer than the setup header"},
	} {
		if got := WhatIs([]byte(c.data)); !strings.Contains(got, c.words) {
			t.Errorf("%s: %q lacks %q", name, got, c.words)
		}
	}
}
