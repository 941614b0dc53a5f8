// SPDX-License-Identifier: Apache-2.0

package tarlimit

import (
	"archive/tar"
	"math"
	"strings"
	"testing"
)

func TestTake(t *testing.T) {
	for name, c := range map[string]struct {
		sizes []int64
		fits  int // of them, before the first that does not
	}{
		"all":                {[]int64{4, 0, 6}, 3},
		"a byte too many":    {[]int64{4, 7}, 1},
		"too many files":     {[]int64{0, 0, 0, 0}, 3},
		"less than nothing":  {[]int64{-1}, 0},
		"no sum runs over":   {[]int64{5, math.MaxInt64}, 1},
		"one larger than it": {[]int64{11}, 0},
	} {
		b := Budget{Bytes: 10, Entries: 3}
		for i, size := range c.sizes {
			err := b.Take(&tar.Header{Name: "x", Size: size})
			if fits := err == nil; fits != (i < c.fits) {
				t.Errorf("%s: entry %d: %v", name, i, err)
			}
			if err != nil {
				break
			}
		}
	}
}

// Each name can create as many folders as it has parts.
func TestFoldersInNames(t *testing.T) {
	for name, c := range map[string]struct {
		names []string
		fits  int
	}{
		"each counts":              {[]string{"a/b/c", "x", "y", "z"}, 3},
		"once":                     {[]string{"a/b/c", "a/b/d", "a/b/./e", "x"}, 3},
		"those on the way too":     {[]string{"a/b/c/d", "a/x", "a/b/y"}, 2},
		"too many in one":          {[]string{"1/2/3/4/5/6"}, 0},
		"over the limit of a name": {[]string{strings.Repeat("/", 5000) + "x"}, 0},
	} {
		b := Budget{Bytes: 10, Entries: 5}
		for i, path := range c.names {
			err := b.Take(&tar.Header{Name: path})
			if fits := err == nil; fits != (i < c.fits) {
				t.Errorf("%s: %.20q: %v", name, path, err)
			}
			if err != nil {
				if len(err.Error()) > 300 {
					t.Errorf("%s: %d bytes of error", name, len(err.Error()))
				}
				break
			}
		}
	}
}
