// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/build"
	"github.com/kernelbroker/kernelbroker/kernel-broker/report/kernelreport"
)

// origin is what kernel show adds to a version: its provenance and the findings about it.
type origin struct {
	Provenance *build.Manifest `json:"provenance,omitempty"`
	Verdict    any             `json:"verdict,omitempty"`
	verdict    string
}

func (a *app) origin(ctx context.Context, v *api.ProfileVersion) (origin, error) {
	var o origin
	var documents []kb.Document
	for _, d := range v.GetDocuments() {
		documents = append(documents, kb.Document{Name: d.GetName(), Digest: d.GetDigest(), Size: d.GetSize()})
	}
	provenance, err := a.document(ctx, documents, documentProvenance)
	if err != nil {
		return o, fmt.Errorf("provenance of %s: %w", refOf(v), err)
	}
	found, err := a.document(ctx, documents, documentReport)
	if err != nil {
		return o, err
	}
	if err := o.read(provenance, found); err != nil {
		return o, fmt.Errorf("%w, of %s", err, refOf(v))
	}
	return o, nil
}

// read parses the registered documents of a version, which may be nil.
func (o *origin) read(provenance, found []byte) error {
	if provenance != nil {
		manifest, err := build.ParseManifest(provenance)
		if err != nil {
			return fmt.Errorf("provenance: %w", err)
		}
		o.Provenance = &manifest
	}
	if found == nil {
		return nil
	}
	verdict, err := kernelreport.ReadVerdict(found)
	if err != nil {
		return err
	}
	if verdict != nil {
		o.Verdict, o.verdict = verdict, fmt.Sprintf("%s: %s", verdict.Outcome, verdict.Reason)
	}
	return nil
}

// showVersion prints a version with its origin. In JSON both share one object.
func (a *app) showVersion(v *api.ProfileVersion, o origin) error {
	if a.output == outputTable {
		return a.page(func(p *page) {
			kernelPage(p, v)
			o.page(p)
		})
	}
	text, err := marshal(v)
	if err != nil {
		return err
	}
	more, err := json.Marshal(o)
	if err != nil {
		return fmt.Errorf("result: %w", err)
	}
	if string(more) != "{}" {
		text = []byte(strings.TrimSuffix(strings.TrimSpace(string(text)), "}") + "," + strings.TrimPrefix(string(more), "{"))
	}
	return a.showJSON(text)
}

func (o origin) page(p *page) {
	m := o.Provenance
	if m == nil {
		p.line("\nWhere it is from was not registered with it.")
		return
	}
	p.line("")
	p.field("Source:", fmt.Sprintf("%s %s %s", m.Source.Package, m.Source.Version, m.Source.Digest))
	for _, patch := range m.Source.Patches {
		p.field("Patch:", fmt.Sprintf("%s %s, upstream: %s", patch.Name, patch.Digest, patch.Upstream))
	}
	p.field("Configuration:", m.Config.Digest)
	for _, part := range m.Fragments {
		p.field("Fragment:", part.Name+" "+part.Digest)
	}
	if m.Compiler != nil {
		p.field("Compiler:", m.Compiler.Name+": "+m.Compiler.Version)
		p.field("Linker:", m.Compiler.Linker)
	}
	p.field("Optimisation:", string(m.Optimisation))
	p.field("Flags:", strings.Join(m.Flags, " "))
	if m.Profile != nil {
		p.field("Profile:", fmt.Sprintf("%s, %d objects", m.Profile.Digest, m.Profile.Objects))
		for _, e := range m.Profile.Excluded {
			p.field("Without profile:", e.Object+": "+e.Reason)
		}
	}
	p.field("Workload:", m.Workload)
	for _, part := range m.Runs {
		p.field(fmt.Sprintf("Run %d:", part.Run), fmt.Sprintf("%s, node %s %s", part.Use, part.Node, part.Digest))
	}
	p.field("Inputs:", m.InputsKey)
	p.field("Builder:", m.Builder)
	if o.verdict != "" {
		p.field("Verdict:", o.verdict)
	}
}

// field adds a row unless it is empty.
func (p *page) field(name, value string) {
	if strings.TrimSpace(value) != "" {
		p.row(name, value)
	}
}
