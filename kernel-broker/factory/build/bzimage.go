// SPDX-License-Identifier: Apache-2.0

package build

import (
	"bytes"
	"cmp"
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"

	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/elfnote"
)

// Places in the setup header of a bzImage, from the x86 boot protocol, 2.06 and
// later (2.08 for the payload).
const (
	headerSetupSectors  = 0x1f1
	headerMagic         = 0x202
	headerVersion       = 0x206
	headerKernelVersion = 0x20e
	headerCmdlineSize   = 0x238
	headerPayloadOffset = 0x248
	headerPayloadLength = 0x24c
	headerEnd           = 0x250
	protocolWithPayload = 0x0208
	sectorSize          = 512
)

// Image is what a bzImage says of itself.
type Image struct {
	// Release as the header states it; uname -r will print it.
	Release string
	// CommandLineBytes is the longest command line the kernel takes, without
	// the final zero byte.
	CommandLineBytes int
	// BuildID of the compressed kernel inside, in hex.
	BuildID string
}

// ReadImage opens a bzImage down to the notes of the kernel in it, which needs
// the decompressor of the kernel's compression.
func ReadImage(ctx context.Context, path string) (Image, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return Image{}, fmt.Errorf("image: %w", err)
	}
	image, _, err := OpenImage(ctx, data)
	if err != nil {
		return Image{}, fmt.Errorf("image %q: %w", path, err)
	}
	return image, nil
}

// OpenImage is ReadImage of bytes in memory, and returns the unpacked kernel
// too.
func OpenImage(ctx context.Context, data []byte) (Image, []byte, error) {
	image, payload, err := parseImage(data)
	if err != nil {
		return Image{}, nil, err
	}
	kernel, err := decompress(ctx, payload)
	if err != nil {
		return Image{}, nil, fmt.Errorf("payload: %w", err)
	}
	image.BuildID, err = buildID(bytes.NewReader(kernel))
	return image, kernel, err
}

func parseImage(data []byte) (Image, []byte, error) {
	if len(data) < headerEnd || string(data[headerMagic:headerMagic+4]) != "HdrS" {
		return Image{}, nil, fmt.Errorf("no bzImage: %s", WhatIs(data))
	}
	little := binary.LittleEndian
	if version := little.Uint16(data[headerVersion:]); version < protocolWithPayload {
		return Image{}, nil, fmt.Errorf("boot protocol %#x is older than %#x", version, protocolWithPayload)
	}
	release, err := headerRelease(data)
	if err != nil {
		return Image{}, nil, err
	}
	sectors := int64(data[headerSetupSectors])
	if sectors == 0 {
		sectors = 4 // what zero means to boot loaders
	}
	begin := (sectors+1)*sectorSize + int64(little.Uint32(data[headerPayloadOffset:]))
	end := begin + int64(little.Uint32(data[headerPayloadLength:]))
	if begin >= end || end > int64(len(data)) {
		return Image{}, nil, fmt.Errorf("payload from byte %d to %d in a file of %d: truncated", begin, end, len(data))
	}
	image := Image{Release: release, CommandLineBytes: int(little.Uint32(data[headerCmdlineSize:]))}
	return image, data[begin:end], nil
}

// headerRelease is the first word of the version string.
func headerRelease(data []byte) (string, error) {
	at := int(binary.LittleEndian.Uint16(data[headerKernelVersion:])) + sectorSize
	if at >= len(data) {
		return "", errors.New("version string beyond the end: truncated")
	}
	text := data[at:min(len(data), at+256)]
	end := bytes.IndexAny(text, " \x00")
	if end <= 0 {
		return "", errors.New("no version string in the header")
	}
	return string(text[:end]), nil
}

// compressions by their first bytes. Except for gzip, whose own trailer does
// it, the build appends the size of the content, which no tool expects.
var compressions = []struct {
	magic   string
	tool    []string
	trailer int
}{
	{"\x1f\x8b", []string{"gzip", "-dc"}, 0},
	{"\xfd7zXZ\x00", []string{"xz", "-dc", "--single-stream"}, 4},
	{"\x02\x21\x4c\x18", []string{"lz4", "-dc"}, 4},
	{"\x28\xb5\x2f\xfd", []string{"zstd", "-dcq"}, 4},
	{"BZh", []string{"bzip2", "-dc"}, 4},
	{"\x5d\x00\x00", []string{"xz", "-dc", "--format=lzma"}, 4},
	{"\x89LZO\x00\r\n\x1a\n", []string{"lzop", "-dc"}, 4},
}

func decompress(ctx context.Context, payload []byte) ([]byte, error) {
	for _, compression := range compressions {
		if !bytes.HasPrefix(payload, []byte(compression.magic)) || len(payload) < compression.trailer {
			continue
		}
		input := bytes.NewReader(payload[:len(payload)-compression.trailer])
		return unpack(ctx, input, compression.tool[0], compression.tool[1:]...)
	}
	return nil, fmt.Errorf("unknown compression, begins with % x", payload[:min(8, len(payload))])
}

// maxUnpacked is far above any kernel: an image may be untrusted, and a
// few bytes can unpack to any number.
const maxUnpacked = 1 << 30

// unpack runs a decompressor and ends it when there is no end.
func unpack(ctx context.Context, input io.Reader, name string, args ...string) ([]byte, error) {
	cmd := command(ctx, nil, name, args...)
	cmd.Stdin = input
	out := &bounded{}
	cmd.Stdout = out
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	err := cmd.Run()
	if out.full {
		return nil, fmt.Errorf("%s: more than %d bytes", name, maxUnpacked)
	}
	if errors.Is(err, exec.ErrNotFound) {
		return nil, fmt.Errorf("the kernel is compressed for %s: install %s: %w", name, name, err)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", name, err, bytes.TrimSpace(complaint.Bytes()))
	}
	return out.content.Bytes(), nil
}

// bounded is a buffer that refuses what is too much. It has no other way in
// than Write.
type bounded struct {
	content bytes.Buffer
	full    bool
}

func (b *bounded) Write(p []byte) (int, error) {
	if b.content.Len()+len(p) > maxUnpacked {
		b.full = true
		return 0, io.ErrShortWrite
	}
	return b.content.Write(p)
}

// ReadBuildID returns the GNU build id of an ELF file, in hex.
func ReadBuildID(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("build id: %w", err)
	}
	defer func() { _ = file.Close() }() // only read from
	id, err := buildID(file)
	if err != nil {
		return "", fmt.Errorf("build id of %q: %w", path, err)
	}
	return id, nil
}

func buildID(reader io.ReaderAt) (string, error) {
	file, err := elf.NewFile(reader)
	if err != nil {
		return "", fmt.Errorf("elf: %w", err)
	}
	for _, segment := range file.Progs {
		if segment.Type != elf.PT_NOTE {
			continue
		}
		notes, err := io.ReadAll(segment.Open())
		if err != nil {
			return "", fmt.Errorf("elf notes: %w", err)
		}
		if id := elfnote.BuildID(notes, file.ByteOrder); id != "" {
			return id, nil
		}
	}
	return "", errors.New("no GNU build id among the elf notes")
}

// elfMachines that Linux runs on, by their usual names.
var elfMachines = map[elf.Machine]string{elf.EM_386: "x86", elf.EM_MIPS: "MIPS", elf.EM_PPC: "PowerPC", elf.EM_PPC64: "PowerPC",
	elf.EM_S390: "s390", elf.EM_ARM: "ARM", elf.EM_AARCH64: "ARM64", elf.EM_RISCV: "RISC-V", elf.EM_LOONGARCH: "LoongArch"}

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
	if elf.Data(data[elf.EI_DATA]) == elf.ELFDATA2MSB {
		order = binary.BigEndian
	}
	if machine := elf.Machine(order.Uint16(data[18:])); machine != elf.EM_X86_64 {
		name := cmp.Or(elfMachines[machine], fmt.Sprintf("machine %d", machine))
		return fmt.Sprintf("it is an ELF file for %s; nodes are x86_64", name)
	}
	return "it is an ELF file, as vmlinux is, which kexec does not boot with an initrd; the bootable one of the same build is arch/x86/boot/bzImage (make bzImage), installed as /boot/vmlinuz-RELEASE"
}
