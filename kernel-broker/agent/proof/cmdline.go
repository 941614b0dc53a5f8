// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"strings"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// Split splits a command line as the kernel does: at white space outside double quotes. Arguments after "--" belong to
// init and are omitted.
func Split(line string) []string {
	var arguments []string
	var current strings.Builder
	quoted := false
	flush := func() {
		if current.Len() > 0 {
			arguments = append(arguments, current.String())
			current.Reset()
		}
	}
	for i := range len(line) {
		c := line[i]
		if c == '"' {
			quoted = !quoted
		}
		if !quoted && isSpace(c) {
			flush()
			continue
		}
		current.WriteByte(c)
	}
	flush()
	for i, argument := range arguments {
		if argument == "--" {
			return arguments[:i]
		}
	}
	return arguments
}

func isSpace(c byte) bool {
	return c == ' ' || c >= '\t' && c <= '\r' || c == 0
}

// Value returns the last value of a parameter, as the kernel would use it.
func Value(arguments []string, name string) string {
	value := ""
	for _, argument := range arguments {
		if key, v, has := strings.Cut(argument, "="); has && sameName(key, name) {
			value = strings.Trim(v, `"`)
		}
	}
	return value
}

func sameName(a, b string) bool { return kb.Parameters{a}.Has(b) }
