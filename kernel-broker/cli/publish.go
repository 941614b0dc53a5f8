// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/api/convert"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/catalog"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/build"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/kernelbuild"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/atomicfile"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/digest"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/modules"
	"github.com/kernelbroker/kernelbroker/kernel-broker/report/kernelreport"
)

// Names of documents.
const (
	documentProvenance = catalog.Provenance
	documentReport     = catalog.Report
	documentPage       = "page"
)

// buildBroker is the broker for builds, which registers kernels as an
// administrator would.
type buildBroker struct {
	app       *app
	signature *signature
}

func (b buildBroker) Profile(ctx context.Context, name string) (*kb.Profile, error) {
	profile, err := b.app.profileIfAny(ctx, name)
	if profile == nil {
		return nil, err
	}
	out := convert.ProfileFromProto(profile)
	return &out, nil
}

func (b buildBroker) Run(ctx context.Context, id uint64) (kernelbuild.Run, error) {
	r, err := b.app.getRun(ctx, id)
	if err != nil {
		return kernelbuild.Run{}, err
	}
	run := kernelbuild.Run{ID: id, Kernel: kb.Ref{Profile: r.GetKernelProfile(), Version: r.GetKernelVersion()}}
	for _, n := range r.GetNodes() {
		node := kb.RunNode{Name: n.GetName()}
		for _, f := range n.GetFiles() {
			node.Files = append(node.Files, kb.Document{Name: f.GetName(), Digest: f.GetDigest(), Size: f.GetSize()})
		}
		run.Nodes = append(run.Nodes, node)
	}
	run.Result, err = b.app.result(ctx, r)
	return run, err
}

func (b buildBroker) Fetch(ctx context.Context, digest string, size uint64, path string) error {
	return atomicfile.Fill(path, 0o600, func(file *os.File) error { return b.app.fetch(ctx, digest, size, file) })
}

func (b buildBroker) Provenance(ctx context.Context, v kb.ProfileVersion) ([]byte, error) {
	return b.app.document(ctx, v.Documents, documentProvenance)
}

func (b buildBroker) Register(ctx context.Context, k kernelbuild.Registration) (kb.Ref, error) {
	return b.app.registerIn(ctx, registration{
		profile: k.Profile, application: k.Application, description: k.Description, arguments: k.Arguments, systemCores: k.SystemCores, makeDefault: true, signature: *b.signature,
		kernel: filepath.Join(k.Dir, build.ImageFile), manifest: filepath.Join(k.Dir, build.ManifestFile),
		documents: map[string]string{documentReport: k.Report, documentPage: k.Page},
	})
}

// Settings implements kernelbuild.Broker: those of the default version are the
// site's, and go on to the next one. They come from the broker, so that they are
// signed only if they were.
func (b buildBroker) Settings(profile *kb.Profile) (none kernelbuild.Settings, err error) {
	if profile == nil {
		return none, nil
	}
	for _, v := range profile.Versions {
		k := v.Kernel
		if k.Version != profile.DefaultVersion {
			continue
		}
		settings := kernelbuild.Settings{Arguments: k.Arguments, SystemCores: k.SystemCores}
		if len(b.signature.opened) == 0 || len(k.Arguments) == 0 && k.SystemCores == 0 {
			return settings, nil
		}
		m, err := b.signature.verified(v.Envelope)
		if err == nil {
			err = m.Describes(k)
		}
		if err != nil {
			return none, fmt.Errorf("kernel %q: its arguments %q%s would be signed for the next version, with no evidence other than the broker's: %w; "+
				"sign it first (kernelctl kernel sign %s), or give --verify-key with the key that signed it: %w", k.Ref(), k.Arguments, either(k.SystemCores > 0, " and system cores", ""), err, k.Ref(), kb.ErrFailedPrecondition)
		}
		return settings, nil
	}
	return none, nil
}

// describe finds the documents of a registration, the manifest among them.
func (r registration) describe() ([]*api.Document, []catalog.Artifact, error) {
	paths := map[string]string{documentProvenance: r.manifest}
	for name, path := range r.documents {
		paths[name] = path
	}
	var documents []*api.Document
	var files []catalog.Artifact
	for _, name := range []string{documentProvenance, documentReport, documentPage, documentAdmission} {
		if paths[name] == "" {
			continue
		}
		file, err := catalog.DescribeFile(paths[name], catalog.MaxDocument)
		if err != nil {
			return nil, nil, err
		}
		documents = append(documents, &api.Document{Name: name, Digest: file.Digest, Size: file.Size})
		files = append(files, file)
	}
	return documents, files, nil
}

// measured is what the report among the documents says of the kernel; nil without one.
func (r registration) measured(image string) (*api.Measurement, error) {
	path := r.documents[documentReport]
	if path == "" {
		return nil, nil
	}
	m, err := readMeasurement(path, cmp.Or(r.report, path), image, r.manifest)
	return convert.MeasurementToProto(m), err
}

// measureLater adds the measurement to a version without one; nil if it has another report, or there is none.
func (r registration) measureLater(v *api.ProfileVersion) ([]catalog.Artifact, error) {
	m, err := r.measured(v.GetKernel().GetImageDigest())
	if err != nil || m == nil || v.GetMeasured() != nil {
		return nil, err
	}
	for _, d := range v.GetDocuments() {
		if d.GetName() == documentReport && d.GetDigest() != m.GetReportDigest() {
			return nil, nil
		}
	}
	documents, files, err := registration{documents: map[string]string{documentReport: r.documents[documentReport]}}.describe()
	if err == nil {
		v.Documents, v.Measured = documents, m
	}
	return files, err
}

// fetch gets a stored file of so many bytes, and checks its digest. It stops where
// the file has to end.
func (a *app) fetch(ctx context.Context, want string, size uint64, to io.Writer) error {
	conn, err := a.dial()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := api.NewCatalogServiceClient(conn).FetchArtifact(ctx, &api.FetchArtifactRequest{Digest: want})
	if err != nil {
		return err
	}
	sum := sha256.New()
	for left := size; ; {
		part, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		n := uint64(len(part.GetData()))
		if n > left {
			return fmt.Errorf("the broker sends more than the %d bytes of artifact %s: %w", size, want, kb.ErrInvalid)
		}
		if _, err := io.MultiWriter(sum, to).Write(part.GetData()); err != nil {
			return err
		}
		left -= n
	}
	if got := digest.Text(sum); got != want {
		return fmt.Errorf("the broker's file has digest %s, not %s: %w", got, want, kb.ErrInvalid)
	}
	return nil
}

// document gets the content of a document; empty if there is none of that name. It is a builder's, and read into memory: the broker bounds it, and
// so does this.
func (a *app) document(ctx context.Context, documents []kb.Document, name string) ([]byte, error) {
	for _, d := range documents {
		if d.Name != name {
			continue
		}
		if d.Size > catalog.MaxDocument {
			return nil, fmt.Errorf("document %q has %d bytes, at most %d are read; register the kernel as a new version, with a smaller one: %w",
				name, d.Size, catalog.MaxDocument, kb.ErrInvalid)
		}
		return a.content(ctx, d.Digest, d.Size)
	}
	return nil, nil
}

// content gets a stored file's bytes, of which there are so many.
func (a *app) content(ctx context.Context, digest string, size uint64) ([]byte, error) {
	var content bytes.Buffer
	err := a.fetch(ctx, digest, size, &content)
	return content.Bytes(), err
}

// origin is what kernel show adds to a version: its provenance and the findings about it.
type origin struct {
	Provenance *build.Manifest `json:"provenance,omitempty"`
	Verdict    any             `json:"verdict,omitempty"`
	verdict    string
}

// modules are the packages that the kernel's modules of others were built from.
func (o origin) modules() []modules.Package {
	if o.Provenance == nil {
		return nil
	}
	return o.Provenance.ModulePackages
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
	if a.isTable() {
		return a.page(func(p *page) {
			kernelPage(p, v, o)
			o.page(p, v.GetMeasured() != nil)
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

// page prints the verdict of the report, unless the version's own record has one.
func (o origin) page(p *page, measured bool) {
	m := o.Provenance
	if m == nil {
		p.line("\nWhere it is from was not registered with it.")
		return
	}
	p.line("")
	p.field("Source:", fmt.Sprintf("%s %s %s", m.Source.Package, m.Source.Version, p.shortDigest(m.Source.Digest)))
	for _, patch := range m.Source.Patches {
		p.field("Patch:", fmt.Sprintf("%s %s, upstream: %s", patch.Name, p.shortDigest(patch.Digest), patch.Upstream))
	}
	p.field("Configuration:", p.shortDigest(m.Config.Digest))
	for _, part := range m.Fragments {
		p.field("Fragment:", part.Name+" "+p.shortDigest(part.Digest))
	}
	if m.Compiler != nil {
		p.field("Compiler:", m.Compiler.Name+": "+m.Compiler.Version)
		p.field("Linker:", m.Compiler.Linker)
	}
	p.field("Optimisation:", string(m.Optimisation))
	p.field("Flags:", strings.Join(m.Flags, " "))
	if m.Profile != nil {
		p.field("Profile:", fmt.Sprintf("%s, %d objects", p.shortDigest(m.Profile.Digest), m.Profile.Objects))
		for _, e := range m.Profile.Excluded {
			p.field("Without profile:", e.Object+": "+e.Reason)
		}
	}
	p.field("Workload:", m.Workload)
	for _, part := range m.Runs {
		p.field(fmt.Sprintf("Run %d:", part.Run), fmt.Sprintf("%s, node %s %s", part.Use, part.Node, p.shortDigest(part.Digest)))
	}
	p.field("Inputs:", m.InputsKey)
	p.field("Builder:", m.Builder)
	if o.verdict != "" && !measured {
		p.field("Verdict:", o.verdict)
	}
}

// field adds a row unless it is empty.
func (p *page) field(name, value string) {
	if strings.TrimSpace(value) != "" {
		p.row(name, value)
	}
}
