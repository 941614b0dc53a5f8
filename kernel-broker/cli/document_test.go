// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"testing"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/catalog"
)

// A document is fetched when it is small, and no further than it was announced.
func TestShowFetchesAnnouncedSizeOnly(t *testing.T) {
	announced := uint64(0)
	f, _, _ := lying(t, func(p *kb.Profile) {
		for i := range p.Versions {
			if announced > 0 && len(p.Versions[i].Documents) > 0 {
				p.Versions[i].Documents[0].Size = announced
			}
		}
	})
	t.Setenv("TMPDIR", t.TempDir())
	f.must(0, "", "kernel", "show", "mitgcm@1")
	stored := f.version(t, mitgcm1).Documents[0]
	for _, c := range []struct {
		size  uint64
		code  int
		words string
	}{
		{catalog.MaxDocument + 1, 3, `document "provenance" has 16777217 bytes, at most 16777216 are read`},
		{1 << 31, 3, "has 2147483648 bytes"},
		{stored.Size - 1, 3, "the broker sends more than the"},
		{1, 3, "more than the 1 bytes of artifact " + stored.Digest},
		{stored.Size, 0, ""},
	} {
		announced = c.size
		f.must(c.code, c.words, "kernel", "show", "mitgcm@1")
		if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) > 0 {
			t.Errorf("%d bytes announced: left %v, %v", c.size, left, err)
		}
	}
}
