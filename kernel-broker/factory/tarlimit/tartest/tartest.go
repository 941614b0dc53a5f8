// Package tartest is for fuzz targets of what reads archives. A tar header whose
// checksum is wrong is refused before anything in it is looked at, and no
// mutation hits on the right one.
package tartest

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"strconv"
	"strings"
)

const (
	block      = 512
	sizeAt     = 124
	checksumAt = 148
	typeAt     = 156
)

// Mend gives every header of an archive its checksum.
func Mend(archive []byte) []byte {
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

// Zip packs it.
func Zip(archive []byte) []byte {
	var packed bytes.Buffer
	zipped := gzip.NewWriter(&packed)
	_, _ = zipped.Write(archive) // to memory
	_ = zipped.Close()
	return packed.Bytes()
}
