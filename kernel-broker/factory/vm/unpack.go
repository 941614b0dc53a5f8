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
	// Behind its end tar fills up its last record.
	mostPadding = 1 << 20
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
	for reader := tar.NewReader(unzipped); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = budget.Take(header)
		}
		if err != nil {
			return 0, fmt.Errorf("the result: %w", err)
		}
		switch name := path.Clean(header.Name); name {
		case exitEntry:
			if code, err = readCode(reader); err != nil {
				return 0, err
			}
		case endEntry:
			whole = true
		default:
			if err := unpackEntry(header, reader, name, dir); err != nil {
				return 0, err
			}
		}
	}
	// What tar leaves unread ends with the checksum of all of it.
	if _, err := io.CopyN(io.Discard, unzipped, mostPadding); !errors.Is(err, io.EOF) {
		if err == nil {
			err = fmt.Errorf("it goes on behind its end for more than %d bytes", mostPadding)
		}
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
		return 0, fmt.Errorf("the result: %w", err)
	}
	code, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || code < 0 || code > 255 {
		return 0, fmt.Errorf("the result: exit code %q", text)
	}
	return code, nil
}

func unpackEntry(header *tar.Header, reader io.Reader, name, dir string) error {
	below, found := strings.CutPrefix(name+"/", outEntry+"/")
	below = strings.TrimSuffix(below, "/")
	if !found || (below != "" && !filepath.IsLocal(below)) {
		return fmt.Errorf("the result holds %q, which is not below /out", header.Name)
	}
	target := filepath.Join(dir, below)
	switch header.Typeflag {
	case tar.TypeDir:
		return os.MkdirAll(target, 0o755)
	case tar.TypeReg:
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return err
		}
		out, err := os.OpenFile(target, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if err != nil {
			return err
		}
		_, err = io.Copy(out, reader)
		return errors.Join(err, out.Close())
	}
	return nil // links and devices say nothing on another machine
}
