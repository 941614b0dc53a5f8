// Package jsonfile leaves the results of benchmarks as files for programs to
// read, beside the tables that people read.
package jsonfile

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/kernelbroker/kernelbroker/kernel-broker/replace"
)

// Write writes v as indented JSON, and makes the folder for it. The file is
// replaced as a whole: a run may be ended at any time.
func Write(path string, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("results for %q: %w", path, err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("results: %w", err)
	}
	return replace.File(path, append(text, '\n'), 0o644)
}
