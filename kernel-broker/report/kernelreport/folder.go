// SPDX-License-Identifier: Apache-2.0

package kernelreport

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// The files of a report in a folder.
const (
	JSONFile = "report.json"
	HTMLFile = "report.html"
	TextFile = "report.txt"
)

// Write puts the report into a folder, in its three forms.
func (r Report) Write(dir string) error {
	for name, write := range map[string]func(io.Writer) error{
		JSONFile: r.WriteJSON, HTMLFile: r.WriteHTML, TextFile: r.WriteText,
	} {
		var out bytes.Buffer
		if err := write(&out); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), out.Bytes(), 0o644); err != nil {
			return fmt.Errorf("report %q: %w", r.Facts.name(), err)
		}
	}
	return nil
}

// ReadFolder reads what Write wrote.
func ReadFolder(dir string) (Report, error) {
	file, err := os.Open(filepath.Join(dir, JSONFile))
	if err != nil {
		return Report{}, fmt.Errorf("report: %w", err)
	}
	defer file.Close()
	return Read(file)
}
