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

// maxConfig is far above the size of a distribution's configuration.
const maxConfig = 4 << 20

// Symbols returns the running kernel's configuration symbols, without CONFIG_, from /proc/config.gz or the
// distribution's file in /boot; nil if neither exists. root is a path prefix for tests.
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
