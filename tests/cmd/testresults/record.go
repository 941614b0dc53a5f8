// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

// A printer shows a stream to a reader line by line.
type printer interface {
	line(text []byte)
	end()
}

// record runs a command and keeps its standard output in a file while the
// printer shows it. The error is the command's: what the stream says about
// single tests is for the sum.
func record(path string, command []string, show printer, stderr io.Writer) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stderr = stderr
	stream, err := cmd.StdoutPipe()
	if err != nil {
		return errors.Join(err, file.Close())
	}
	if err := cmd.Start(); err != nil {
		return errors.Join(err, file.Close())
	}
	copyErr := eachLine(io.TeeReader(stream, file), show.line)
	if copyErr != nil {
		// Nobody reads on; the command must not wait for that.
		copyErr = errors.Join(copyErr, stream.Close())
	}
	show.end()
	return errors.Join(cmd.Wait(), copyErr, file.Close())
}

// eachLine hands over every line, the last one too when it has no newline, of
// whatever length: a test's output may well be one line of a megabyte.
func eachLine(stream io.Reader, handle func([]byte)) error {
	reader := bufio.NewReaderSize(stream, 64<<10)
	for {
		text, err := reader.ReadBytes('\n')
		if n := len(text); n > 0 {
			if text[n-1] == '\n' {
				text = text[:n-1]
			}
			handle(text)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("test output: %w", err)
		}
	}
}
