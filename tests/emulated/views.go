// SPDX-License-Identifier: Apache-2.0

package emulated

import "strings"

// Sections parses scontrol's output about several jobs or nodes.
func Sections(text string) []map[string]string {
	var all []map[string]string
	for section := range strings.SplitSeq(text, "\n\n") {
		if one := fields(section); len(one) > 0 {
			all = append(all, one)
		}
	}
	return all
}
