// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
)

const (
	headName = "head"
	lockName = "lock"
)

var fileName = regexp.MustCompile(`^audit-(\d{12})\.log$`)

func nameOf(first uint64) string { return fmt.Sprintf("audit-%012d.log", first) }

// firstOf is the number of the first line of a file by its name.
func firstOf(path string) (uint64, bool) {
	parts := fileName.FindStringSubmatch(filepath.Base(path))
	if parts == nil {
		return 0, false
	}
	n, err := strconv.ParseUint(parts[1], 10, 64)
	return n, err == nil
}

// logFiles returns the paths of a folder's files in their order.
func logFiles(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("audit log: %w", err)
	}
	var paths []string
	for _, entry := range entries {
		if _, ours := firstOf(entry.Name()); ours {
			paths = append(paths, filepath.Join(dir, entry.Name()))
		}
	}
	slices.Sort(paths)
	return paths, nil
}

// readHead returns the head of a folder; nil when there is none.
func readHead(dir string) (*Head, error) {
	text, err := os.ReadFile(filepath.Join(dir, headName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("audit log: %w", err)
	}
	h, err := ParseHead(string(text))
	if err != nil {
		return nil, fmt.Errorf("audit log %q: %w", dir, err)
	}
	return &h, nil
}
