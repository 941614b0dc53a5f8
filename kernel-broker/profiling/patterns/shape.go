// SPDX-License-Identifier: Apache-2.0

package patterns

import (
	"path"
	"strings"
)

// Shape is a file's path with what counts taken out: runs of digits become *,
// also those in hexadecimal that hold a digit and are long enough to be an
// identifier.
func Shape(name string) string {
	dir, last := path.Split(name)
	var out strings.Builder
	for part := range strings.SplitSeq(dir, "/") {
		if part != "" {
			out.WriteByte('/')
			out.WriteString(mask(part))
		}
	}
	if dir != "" {
		out.WriteByte('/')
	}
	out.WriteString(mask(last))
	if dir != "" && dir[0] != '/' {
		return out.String()[1:]
	}
	return out.String()
}

// leastHex is the length from which hexadecimal digits are an identifier.
const leastHex = 8

func mask(text string) string {
	var out strings.Builder
	for at := 0; at < len(text); {
		if n := identifier(text[at:]); n > 0 && boundary(text, at) {
			out.WriteByte('*')
			at += n
			continue
		}
		if n := digits(text[at:]); n > 0 {
			out.WriteByte('*')
			at += n
			continue
		}
		out.WriteByte(text[at])
		at++
	}
	return out.String()
}

func digits(text string) int {
	n := 0
	for n < len(text) && text[n] >= '0' && text[n] <= '9' {
		n++
	}
	return n
}

// identifier is the length of a hexadecimal number that stands alone.
func identifier(text string) int {
	n, digit := 0, false
	for n < len(text) && strings.IndexByte("0123456789abcdefABCDEF", text[n]) >= 0 {
		digit = digit || text[n] <= '9'
		n++
	}
	if n < leastHex || !digit || n < len(text) && letter(text[n]) {
		return 0
	}
	return n
}

func boundary(text string, at int) bool { return at == 0 || !letter(text[at-1]) }

func letter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }
