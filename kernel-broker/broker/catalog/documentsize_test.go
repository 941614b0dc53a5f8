// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"errors"
	"strings"
	"testing"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// Clients fetch and read a kernel's documents, so builders cannot make them gigabytes large. Documents from before the
// limit do not block changes of the profile.
func TestDocumentsAreBounded(t *testing.T) {
	c, _ := newCatalog(t)
	with := func(size uint64) kb.Profile {
		p := profile("mitgcm", 2)
		d := document("report", "1")
		d.Size = size
		p.Versions[1].Documents = []kb.Document{d}
		return p
	}
	refused := func(id string, size uint64, words string) {
		t.Helper()
		if _, _, err := c.Apply(t.Context(), id, with(size)); !errors.Is(err, kb.ErrInvalid) || !strings.Contains(err.Error(), words) {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
	const words = `kernel "mitgcm@2": document "report" has 16777217 bytes, at most 16777216 are possible`
	refused("new", MaxDocument+1, words)
	refused("most", 1<<63, "has 9223372036854775808 bytes")
	apply(t, c, "none", profile("mitgcm", 2))
	refused("later", MaxDocument+1, words)
	if !apply(t, c, "fits", with(MaxDocument)) {
		t.Error("a document of 16 MiB is rejected")
	}
	old, wanted := with(1<<30), profile("mitgcm", 3)
	if err := c.merge(t.Context(), &old, wanted); err != nil {
		t.Errorf("with a document from before: %v", err)
	}
}
