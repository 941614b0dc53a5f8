// SPDX-License-Identifier: Apache-2.0

package build

import (
	"debug/elf"
	"fmt"
	"strings"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/pgo"
)

// readSections measures vmlinux.o, in which all objects are but not yet linked:
// vmlinux itself has one .text.
func readSections(path string) (pgo.Sections, error) {
	file, err := elf.Open(path)
	if err != nil {
		return pgo.Sections{}, fmt.Errorf("text sections: %w", err)
	}
	defer func() { _ = file.Close() }() // only read from
	var sizes pgo.Sections
	for _, section := range file.Sections {
		if section.Flags&elf.SHF_EXECINSTR == 0 {
			continue
		}
		size := int64(section.Size)
		switch name := section.Name; {
		case name == ".text":
			sizes.Text += size
		case name == ".text.unlikely" || strings.HasPrefix(name, ".text.unlikely."):
			sizes.Unlikely += size
		case name == ".text.hot" || strings.HasPrefix(name, ".text.hot."):
			sizes.Hot += size
		default:
			sizes.Others += size
		}
	}
	return sizes, nil
}
