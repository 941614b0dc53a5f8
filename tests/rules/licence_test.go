// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"bytes"
	"flag"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

var fix = flag.Bool("fix", false, "write the licence into files that do not say it")

// licenceOf names the licence of a file, which goes by what loads the program:
// Linux the collectors' programs, Slurm and QEMU a plugin each.
func licenceOf(name string) string {
	switch {
	case strings.HasPrefix(name, "kernel-broker/agent/collect/bpf/source/"):
		return "GPL-2.0-only"
	case strings.HasPrefix(name, "slurm-plugin/"), strings.HasPrefix(name, "kernel-broker/factory/measure/plugin/"):
		return "Apache-2.0 OR GPL-2.0-or-later"
	}
	return "Apache-2.0"
}

// licenceLine is what a source file begins with, empty for another file.
func licenceLine(name string, text []byte) string {
	line := "SPDX-License-Identifier: " + licenceOf(name)
	switch ending := path.Ext(name); {
	case strings.Contains(name, "/testdata/"):
		return ""
	case name == "kernel-broker/factory/vm/files/init.sh", (ending == ".c" || ending == ".h") &&
		(strings.HasPrefix(name, "tests/workloads/") || strings.HasPrefix(name, "kernel-broker/factory/measure/plugin/")):
		return "" // in each measured guest, by digest: sites would measure everything again
	case ending == ".go" || ending == ".proto" || ending == ".s":
		// Else it would be part of the comment behind it.
		return "// " + line + "\n\n"
	case ending == ".c" || ending == ".h":
		return "/* " + line + " */\n"
	case ending == ".lua":
		return "-- " + line + "\n"
	case ending == ".sh" || ending == ".t" || path.Base(name) == "Makefile" || bytes.HasPrefix(text, []byte("#!")),
		ending == ".yml" && strings.HasPrefix(name, "ansible/"):
		return "# " + line + "\n"
	}
	return ""
}

// TestEveryFileSaysItsLicence writes it with -fix.
func TestEveryFileSaysItsLicence(t *testing.T) {
	for _, name := range files(t) {
		text := read(t, name)
		line := licenceLine(name, text)
		first, rest := []byte(nil), text
		if bytes.HasPrefix(text, []byte("#!")) {
			end := bytes.IndexByte(text, '\n') + 1
			first, rest = text[:end], text[end:]
		}
		if bytes.HasPrefix(rest, []byte(line)) {
			continue
		}
		if !*fix {
			t.Errorf("%s does not begin with %q: go test ./tests/rules -run Licence -fix", name, line)
			continue
		}
		if err := os.WriteFile(filepath.Join(root, name), bytes.Join([][]byte{first, []byte(line), rest}, nil), 0o644); err != nil {
			t.Error(err)
		}
	}
}
