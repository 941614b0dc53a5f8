// SPDX-License-Identifier: Apache-2.0

// Package jsonfile leaves the results of benchmarks as files for programs to
// read, beside the tables that people read.
package jsonfile

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// Write writes v as indented JSON, and makes the folder for it.
func Write(path string, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("results for %q: %w", path, err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("results: %w", err)
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}
