// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"bufio"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// maxConfig is far above what a distribution's configuration takes.
const maxConfig = 4 << 20

// Symbols returns the symbols that the running kernel was built with, without
// CONFIG_, as it says itself or as its distribution left it in /boot; nil where
// neither does. root stands before the paths, for tests.
func Symbols(root, release string) map[string]bool {
	for _, source := range []struct {
		path   string
		packed bool
	}{{"proc/config.gz", true}, {"boot/config-" + release, false}} {
		if set, err := symbols(filepath.Join(root, source.path), source.packed); err == nil && len(set) > 0 {
			return set
		}
	}
	return nil
}

func symbols(path string, packed bool) (set map[string]bool, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	var text io.Reader = file
	if packed {
		if text, err = gzip.NewReader(file); err != nil {
			return nil, err
		}
	}
	set = map[string]bool{}
	lines := bufio.NewScanner(io.LimitReader(text, maxConfig))
	for lines.Scan() {
		rest, is := strings.CutPrefix(lines.Text(), "CONFIG_")
		symbol, value, assigned := strings.Cut(rest, "=")
		if is && assigned && (value == "y" || value == "m") {
			set[symbol] = true
		}
	}
	return set, lines.Err()
}
