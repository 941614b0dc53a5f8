// SPDX-License-Identifier: Apache-2.0

// Package elfnote finds the GNU build id among the notes of an ELF file or of the running kernel, which nodes prove
// themselves by.
package elfnote

import (
	"encoding/binary"
	"encoding/hex"
)

const (
	header     = 12
	gnuBuildID = 3 // NT_GNU_BUILD_ID
)

// BuildID is the first build id of the notes in lower-case hex, or empty.
func BuildID(notes []byte, order binary.ByteOrder) string {
	align := func(n uint64) uint64 { return (n + 3) &^ 3 }
	for len(notes) >= header {
		name, size, kind := uint64(order.Uint32(notes)), uint64(order.Uint32(notes[4:])), order.Uint32(notes[8:])
		content := header + align(name)
		if content+size > uint64(len(notes)) {
			return ""
		}
		if kind == gnuBuildID && string(notes[header:header+name]) == "GNU\x00" && size > 0 {
			return hex.EncodeToString(notes[content : content+size])
		}
		notes = notes[min(content+align(size), uint64(len(notes))):]
	}
	return ""
}
