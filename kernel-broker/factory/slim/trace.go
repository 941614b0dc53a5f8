// SPDX-License-Identifier: Apache-2.0

package slim

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// kernelHalf is where the kernel's half of the address space begins on x86-64.
const kernelHalf = 0xffff800000000000

// Span is a half-open range of addresses.
type Span struct{ Begin, End uint64 }

// Spans is what ran: ranges in order that do not touch each other.
type Spans []Span

// ReadTrace reads the blocks that ran, one "begin end" in hex per line, in any
// order and with repeats. What lies in the user's half is left out.
func ReadTrace(reader io.Reader) (Spans, error) {
	var spans Spans
	err := eachLine(reader, "trace", func(line string) error {
		line = strings.TrimSpace(line)
		if line == "" {
			return nil
		}
		span, err := parseSpan(line)
		if err == nil && span.Begin >= kernelHalf {
			spans = append(spans, span)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return join(spans), nil
}

func parseSpan(line string) (Span, error) {
	fields := strings.Fields(line)
	if len(fields) != 2 {
		return Span{}, fmt.Errorf("%q is not \"begin end\"", line)
	}
	begin, err := parseHex(fields[0])
	if err != nil {
		return Span{}, err
	}
	end, err := parseHex(fields[1])
	if err != nil {
		return Span{}, err
	}
	if end <= begin {
		return Span{}, fmt.Errorf("block ends at %#x, before it begins at %#x", end, begin)
	}
	return Span{Begin: begin, End: end}, nil
}

func parseHex(text string) (uint64, error) {
	value, err := strconv.ParseUint(strings.TrimPrefix(text, "0x"), 16, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is not an address in hex", text)
	}
	return value, nil
}

func join(spans Spans) Spans {
	slices.SortFunc(spans, func(a, b Span) int { return cmp.Compare(a.Begin, b.Begin) })
	joined := Spans{}
	for _, span := range spans {
		if last := len(joined) - 1; last >= 0 && span.Begin <= joined[last].End {
			joined[last].End = max(joined[last].End, span.End)
			continue
		}
		joined = append(joined, span)
	}
	return joined
}

// In counts the bytes of the range that ran.
func (s Spans) In(begin, end uint64) uint64 {
	var ran uint64
	first := sort.Search(len(s), func(i int) bool { return s[i].End > begin })
	for _, span := range s[first:] {
		if span.Begin >= end {
			break
		}
		ran += min(span.End, end) - max(span.Begin, begin)
	}
	return ran
}
