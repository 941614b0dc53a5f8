// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/tarlimit"
)

// The parts of the stream that /init sends: the script's exit code, the files,
// and a last entry that says that tar came to its end.
const (
	exitEntry = "run/exit"
	outEntry  = "out"
	endEntry  = "run/whole"
)

// What a guest may leave behind: some hundred times the counters of a kernel.
const (
	mostBytes   = 2 << 30
	mostEntries = 1 << 17
)

// unpack takes the stream apart: files go below dir, the exit code is returned.
// A guest is not trusted with the host: names stay below dir, only folders and
// files are made, and no more of them than a run has reason to leave.
func unpack(stream, dir string) (code int, err error) {
	file, err := os.Open(stream)
	if err != nil {
		return 0, err
	}
	defer func() { _ = file.Close() }() // only read from
	return take(bufio.NewReader(file), dir)
}

func take(stream io.Reader, dir string) (code int, err error) {
	unzipped, err := gzip.NewReader(stream)
	if err != nil {
		return 0, fmt.Errorf("the result: %w", err)
	}
	// The port carries nothing after the first stream.
	unzipped.Multistream(false)
	code, whole := -1, false
	budget := tarlimit.Budget{Bytes: mostBytes, Entries: mostEntries}
	err = budget.Each(unzipped, func(header *tar.Header, entry io.Reader) (err error) {
		switch name := path.Clean(header.Name); name {
		case exitEntry:
			code, err = readCode(entry)
		case endEntry:
			whole = true
		default:
			err = unpackEntry(header, entry, name, dir)
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("the result: %w", err)
	}
	if code < 0 || !whole {
		return 0, errors.New("the result did not come whole")
	}
	return code, nil
}

func readCode(reader io.Reader) (int, error) {
	text, err := io.ReadAll(io.LimitReader(reader, 16))
	if err != nil {
		return 0, err
	}
	code, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || code < 0 || code > 255 {
		return 0, fmt.Errorf("exit code %q", text)
	}
	return code, nil
}

func unpackEntry(header *tar.Header, reader io.Reader, name, dir string) error {
	below, found := strings.CutPrefix(name+"/", outEntry+"/")
	below = strings.TrimSuffix(below, "/")
	if !found || (below != "" && !filepath.IsLocal(below)) {
		return fmt.Errorf("it holds %q, which is not below /out", header.Name)
	}
	target := filepath.Join(dir, below)
	switch header.Typeflag {
	case tar.TypeDir:
		return os.MkdirAll(target, 0o755)
	case tar.TypeReg:
		return tarlimit.WriteFile(target, reader)
	}
	return nil // links and devices say nothing on another machine
}
