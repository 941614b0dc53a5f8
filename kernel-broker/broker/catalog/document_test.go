// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/tests/support/memstore"
)

func document(name string, digit string) kb.Document {
	return kb.Document{Name: name, Digest: "sha256:" + strings.Repeat(digit, 64), Size: 10}
}

// Documents are added with a version or later, and are then immutable.
func TestDocumentsOfAVersion(t *testing.T) {
	c, _ := newCatalog(t)
	with := func(documents ...kb.Document) kb.Profile {
		p := profile("mitgcm", 2)
		p.Versions[1].Documents = documents
		return p
	}
	names := func() string {
		p, err := c.Get(t.Context(), "mitgcm")
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, d := range p.Versions[1].Documents {
			all = append(all, d.Name+d.Digest[7:8])
		}
		return strings.Join(all, " ")
	}
	apply(t, c, "none", with())
	if !apply(t, c, "two", with(document("report", "1"), document("page", "2"))) || names() != "report1 page2" {
		t.Errorf("added later: %s", names())
	}
	if apply(t, c, "other", with(document("report", "3"))) || apply(t, c, "gone", with()) || names() != "report1 page2" {
		t.Errorf("added again: %s", names())
	}
	for words, documents := range map[string][]kb.Document{
		`document "report" is given twice`:  {document("report", "1"), document("report", "2")},
		`document "../x" is given twice or`: {document("../x", "1")},
		`document "x": digest "sha256:`:     {{Name: "x", Digest: "sha256:1"}},
		"9 documents, at most 8":            make([]kb.Document, 9),
	} {
		p := with(documents...)
		p.Versions = append(p.Versions, kb.ProfileVersion{Kernel: kernel("mitgcm", 3), Documents: documents})
		if _, _, err := c.Apply(t.Context(), "wrong", p); !errors.Is(err, kb.ErrInvalid) || !strings.Contains(err.Error(), words) {
			t.Errorf("%v, want %q", err, words)
		}
	}
}

func TestDocumentsMustBeStored(t *testing.T) {
	s := memstore.New()
	t.Cleanup(func() { _ = s.Close() })
	c := New(Options{Store: s, Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return noon },
		HasArtifact: func(_ string, size uint64) (bool, error) { return size != 10, nil }})
	p := profile("mitgcm", 1)
	apply(t, c, "without", p)
	p.Versions[0].Documents = []kb.Document{document("report", "1")}
	if _, _, err := c.Apply(t.Context(), "with", p); !errors.Is(err, kb.ErrFailedPrecondition) || !strings.Contains(err.Error(), "document report sha256:1111") {
		t.Errorf("%v", err)
	}
}
