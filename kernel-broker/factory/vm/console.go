// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"bytes"
	"errors"
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
