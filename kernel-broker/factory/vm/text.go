// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"errors"
	"fmt"
	"io"
	"os"
)

// MostText is how much this host reads of a file that a
// guest left: it may have left gigabytes.
const MostText = 1 << 20

// ReadText reads such a file. One that is longer is an error, which names it.
func ReadText(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // only read from
	text, err := io.ReadAll(io.LimitReader(file, MostText+1))
	if err == nil && len(text) > MostText {
		err = fmt.Errorf("%q has more than the %d bytes that a guest may say", path, MostText)
	}
	return text, err
}

// ReadEnd reads the end of such a file.
func ReadEnd(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // only read from
	size, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, err
	}
	text := make([]byte, min(size, MostText))
	n, err := file.ReadAt(text, size-int64(len(text)))
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return text[:n], err
}
