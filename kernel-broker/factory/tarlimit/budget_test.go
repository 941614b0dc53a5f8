package tarlimit

import (
	"archive/tar"
	"math"
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
