// SPDX-License-Identifier: Apache-2.0

// Package imagetest makes small files for tests that look like kernel images to
// everything that reads them and never executes them: a setup header around a
// compressed ELF file with a build id, and a configuration where one is wanted.
package imagetest

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/hex"
	"fmt"
)

// Kernel is what the image says of itself.
type Kernel struct {
	Release, BuildID string
	// Config is the text that the kernel carries; empty for none.
	Config string
}

// Image makes one.
func Image(k Kernel) ([]byte, error) {
	elf, err := file(k)
	if err != nil {
		return nil, err
	}
	packed, err := pack(elf)
	return Around(k.Release, packed), err
}

// Around puts a payload into an image.
func Around(release string, payload []byte) []byte {
	const sectors, sector = 2, 512
	image := make([]byte, (sectors+1)*sector+32)
	little := binary.LittleEndian
	image[0x1f1] = sectors
	little.PutUint16(image[0x1fe:], 0xaa55)
	copy(image[0x202:], "HdrS")
	little.PutUint16(image[0x206:], 0x020f)
	little.PutUint16(image[0x20e:], 512) // of the version string, from byte 512 on
	image[0x211] = 1
	image[0x234] = 1
	little.PutUint16(image[0x236:], 1)
	little.PutUint32(image[0x238:], 2047)
	little.PutUint32(image[0x248:], 32)
	little.PutUint32(image[0x24c:], uint32(len(payload)))
	little.PutUint32(image[0x260:], 16<<20)
	copy(image[1024:], release+" (somebody@somewhere) #1\x00")
	return append(image, payload...)
}

func pack(content []byte) ([]byte, error) {
	var out bytes.Buffer
	packer := gzip.NewWriter(&out)
	if _, err := packer.Write(content); err != nil {
		return nil, err
	}
	err := packer.Close()
	return out.Bytes(), err
}

// file is an ELF file with one segment of notes.
func file(k Kernel) ([]byte, error) {
	id, err := hex.DecodeString(k.BuildID)
	if err != nil {
		return nil, fmt.Errorf("build id: %w", err)
	}
	little := binary.LittleEndian
	note := little.AppendUint32(nil, 4)
	note = little.AppendUint32(note, uint32(len(id)))
	note = append(little.AppendUint32(note, 3), "GNU\x00"...)
	note = append(note, id...)
	const header, segment = 64, 56
	out := []byte("\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00")
	for _, n := range []uint16{2, 62} {
		out = little.AppendUint16(out, n)
	}
	out = little.AppendUint32(out, 1)
	for _, n := range []uint64{0, header, 0} {
		out = little.AppendUint64(out, n)
	}
	out = little.AppendUint32(out, 0)
	for _, n := range []uint16{header, segment, 1, 64, 0, 0} {
		out = little.AppendUint16(out, n)
	}
	out = little.AppendUint32(little.AppendUint32(out, 4), 4)
	for _, n := range []uint64{header + segment, 0, 0, uint64(len(note)), uint64(len(note)), 4} {
		out = little.AppendUint64(out, n)
	}
	out = append(out, note...)
	if k.Config == "" {
		return out, nil
	}
	packed, err := pack([]byte(k.Config))
	return append(append(append(out, "IKCFG_ST"...), packed...), "IKCFG_ED"...), err
}
