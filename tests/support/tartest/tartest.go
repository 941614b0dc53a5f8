// SPDX-License-Identifier: Apache-2.0

// Package tartest supports fuzzing of archive readers: a tar header with a wrong checksum is rejected at once, and
// mutation never finds the right one.
package tartest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"
)

const (
	block      = 512
	sizeAt     = 124
	checksumAt = 148
	typeAt     = 156
)

// FixChecksums sets the checksum of every header of an archive.
func FixChecksums(archive []byte) []byte {
	mended := bytes.Clone(archive)
	for at := 0; at+block <= len(mended); at += block {
		header := mended[at : at+block]
		if bytes.Equal(header, make([]byte, block)) {
			continue
		}
		sum := 0
		for i, b := range header {
			if i >= checksumAt && i < typeAt {
				b = ' '
			}
			sum += int(b)
		}
		copy(header[checksumAt:typeAt], fmt.Sprintf("%06o\x00 ", sum))
		size, err := strconv.ParseInt(strings.Trim(string(header[sizeAt:sizeAt+12]), " \x00"), 8, 64)
		if err == nil && size > 0 && size < int64(len(mended)-at) {
			at += int(size+block-1) / block * block
		}
	}
	return mended
}

// Zip wraps it in gzip without packing it, which is far quicker.
func Zip(archive []byte) []byte {
	const most = 1<<16 - 1
	zipped := []byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255}
	for rest := archive; ; {
		now := rest[:min(len(rest), most)]
		rest = rest[len(now):]
		last := byte(0)
		if len(rest) == 0 {
			last = 1
		}
		size := uint16(len(now))
		zipped = append(zipped, last)
		zipped = binary.LittleEndian.AppendUint16(zipped, size)
		zipped = binary.LittleEndian.AppendUint16(zipped, ^size)
		if zipped = append(zipped, now...); last == 1 {
			break
		}
	}
	zipped = binary.LittleEndian.AppendUint32(zipped, crc32.ChecksumIEEE(archive))
	return binary.LittleEndian.AppendUint32(zipped, uint32(len(archive)))
}
