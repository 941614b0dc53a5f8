// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// tailLines is how much of the console an error carries.
const tailLines = 40

// panicMark is how every kernel since 2.4 says that it gives up, initMark that
// it goes on without the guest's first program.
var (
	panicMark = []byte("Kernel panic - not syncing")
	initMark  = []byte("Failed to execute /init")
)

// console follows the file that QEMU writes the first serial port to. A file,
// not a pipe: a pipe may be full, and then QEMU's timing shows in the guest.
type console struct {
	path     string
	copy     io.Writer
	offset   int64
	rest     []byte // the end of what was read, for a word cut in two
	panicked bool
	astray   bool // the first program is not ours
}

// read takes in what is new.
func (c *console) read() error {
	file, err := os.Open(c.path)
	if errors.Is(err, os.ErrNotExist) {
		return nil // QEMU has not come that far
	}
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // only read from
	if _, err := file.Seek(c.offset, io.SeekStart); err != nil {
		return err
	}
	news, err := io.ReadAll(file)
	if err != nil {
		return err
	}
	c.offset += int64(len(news))
	text := slices.Concat(c.rest, news)
	c.panicked = c.panicked || bytes.Contains(text, panicMark)
	c.astray = c.astray || bytes.Contains(text, initMark)
	c.rest = bytes.Clone(text[max(0, len(text)-len(panicMark)):])
	if c.copy != nil && len(news) > 0 {
		_, err = c.copy.Write(news)
	}
	return err
}

// failure is the error of a guest that did not come to its end.
func (c *console) failure(reason Reason, cause error) *BootError {
	text, err := os.ReadFile(c.path)
	if err != nil {
		cause = errors.Join(cause, err)
	}
	lines := strings.Split(strings.TrimRight(strings.ReplaceAll(string(text), "\r", ""), "\n"), "\n")
	said := ""
	mark := panicMark
	if reason == ReasonInit {
		mark = initMark
	}
	for _, line := range lines {
		if strings.Contains(line, string(mark)) {
			said = line
			break
		}
	}
	return &BootError{
		Reason:  reason,
		Said:    said,
		Tail:    strings.Join(lines[max(0, len(lines)-tailLines):], "\n"),
		Console: c.path,
		Err:     cause,
	}
}

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
