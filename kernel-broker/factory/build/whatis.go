// SPDX-License-Identifier: Apache-2.0

package build

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// elfMachines by their number in an ELF header.
var elfMachines = map[uint16]string{3: "x86", 8: "MIPS", 20: "PowerPC", 21: "PowerPC", 22: "s390", 40: "ARM", 62: "x86_64", 183: "ARM64", 243: "RISC-V", 258: "LoongArch"}

const machineX86 = 62

// marks of files that are mistaken for a bzImage, by their place.
var marks = []struct {
	at    int
	magic string
	what  string
}{
	{0x38, "ARM\x64", "an ARM64 kernel (Image); nodes are x86_64"},
	{0x24, "\x18\x28\x6f\x01", "an ARM kernel (zImage); nodes are x86_64"},
	{0x38, "RSC\x05", "a RISC-V kernel (Image); nodes are x86_64"},
	{0, "\x27\x05\x19\x56", "a U-Boot image (uImage); give arch/x86/boot/bzImage"},
	{0, "\xd0\x0d\xfe\xed", "a flattened image tree (FIT); give arch/x86/boot/bzImage"},
	{4, "zimg", "an EFI zboot image (vmlinuz.efi), which x86 has none of; give arch/x86/boot/bzImage"},
	{0, "!<arch>\n", "an archive, such as a Debian package; unpack it (dpkg-deb -x) and give boot/vmlinuz-RELEASE"},
	{0, "\xed\xab\xee\xdb", "an RPM package; unpack it (rpm2cpio) and give lib/modules/RELEASE/vmlinuz"},
	{0, "070701", "a cpio archive, such as an initrd; that is --initrd"},
	{0, "hsqs", "a squashfs image"},
}

// WhatIs says what a file is that is no bzImage, and what to give instead.
func WhatIs(data []byte) string {
	for _, m := range marks {
		if len(data) >= m.at+len(m.magic) && string(data[m.at:m.at+len(m.magic)]) == m.magic {
			return "it is " + m.what
		}
	}
	for _, c := range compressions {
		if bytes.HasPrefix(data, []byte(c.magic)) {
			return fmt.Sprintf("it is a file that %s compressed: a bzImage has its compression inside; unpack it (%s -d) and see what is in it", c.tool[0], c.tool[0])
		}
	}
	switch {
	case len(data) == 0:
		return "it is empty"
	case bytes.HasPrefix(data, []byte("\x7fELF")) && len(data) > 20:
		return whatELF(data)
	case bytes.HasPrefix(data, []byte("MZ")) && !bytes.Contains(data[:min(len(data), headerEnd)], []byte("HdrS")):
		return "it is an EFI program, such as a unified kernel image, without Linux's setup header; objcopy --dump-section .linux=bzImage takes the kernel out of a unified one"
	case len(data) < headerEnd:
		return fmt.Sprintf("it has %d bytes, fewer than the setup header alone", len(data))
	}
	return "the setup header is missing; give arch/x86/boot/bzImage of the kernel's tree, or /boot/vmlinuz-RELEASE"
}

func whatELF(data []byte) string {
	order := binary.ByteOrder(binary.LittleEndian)
	if data[5] == 2 {
		order = binary.BigEndian
	}
	number := order.Uint16(data[18:])
	machine, known := elfMachines[number]
	if !known {
		machine = fmt.Sprintf("machine %d", number)
	}
	if number != machineX86 {
		return fmt.Sprintf("it is an ELF file for %s; nodes are x86_64", machine)
	}
	return "it is an ELF file, as vmlinux is, which kexec does not boot with an initrd; the bootable one of the same build is arch/x86/boot/bzImage (make bzImage), installed as /boot/vmlinuz-RELEASE"
}
