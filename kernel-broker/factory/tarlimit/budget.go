// Package tarlimit bounds what an archive of somebody else's may hold. A few
// kilobytes of a packed stream can name a disk full of zeros, or of empty files.
package tarlimit

import (
	"archive/tar"
	"fmt"
)

// Budget is what is left of what an archive may hold.
type Budget struct {
	Bytes   int64
	Entries int
}

// Take takes an entry out of the budget before it is unpacked.
func (b *Budget) Take(h *tar.Header) error {
	if b.Entries--; b.Entries < 0 {
		return fmt.Errorf("%q is one file or folder more than there may be", h.Name)
	}
	if h.Size < 0 || h.Size > b.Bytes {
		return fmt.Errorf("%q has %d bytes, %d more than there may be", h.Name, h.Size, h.Size-b.Bytes)
	}
	b.Bytes -= h.Size
	return nil
}
