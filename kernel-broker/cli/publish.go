// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/api/convert"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/catalog"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/build"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/pipeline"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/atomicfile"
)

// Names of documents.
const (
	documentProvenance = catalog.Provenance
	documentReport     = "report"
	documentPage       = "page"
)

// publisher registers kernels that win, as an administrator would.
type publisher struct {
	app       *app
	signature signature
}

// Publish implements pipeline.Publisher.
func (p publisher) Publish(ctx context.Context, c pipeline.Candidate, log io.Writer) (string, error) {
	r := registration{
		profile: c.Name, kernel: filepath.Join(c.Kernel, build.ImageFile), manifest: filepath.Join(c.Kernel, build.ManifestFile),
		application: c.Application, description: c.Description, makeDefault: true, signature: p.signature,
		documents: map[string]string{documentReport: c.JSON(), documentPage: c.Page()},
	}
	profile, err := p.app.profileIfAny(ctx, r.profile)
	if err != nil {
		return "", err
	}
	if r.arguments, err = argumentsOf(profile, &p.signature); err != nil {
		return "", err
	}
	ref, err := p.app.registerIn(ctx, r)
	if err == nil {
		fmt.Fprintf(log, "%s is in the catalog\n", ref)
	}
	return ref, err
}

// argumentsOf are those of a profile's default version, which go on to the next:
// what the site wants on the command line is the site's. They are the broker's
// word, so that they are signed only if they were.
func argumentsOf(profile *api.Profile, s *signature) ([]string, error) {
	for _, v := range profile.GetVersions() {
		k := convert.KernelFromProto(v.GetKernel())
		if k.Version != profile.GetDefaultVersion() {
			continue
		}
		if len(s.opened) == 0 || len(k.Arguments) == 0 {
			return k.Arguments, nil
		}
		m, err := s.verified(v.GetEnvelope())
		if err == nil {
			err = m.Describes(k)
		}
		if err != nil {
			return nil, fmt.Errorf("kernel %q: its arguments %q would be signed for the next version, and nobody but the broker vouches for them: %w; "+
				"sign it first (kernelctl kernel sign %s), or give --verify-key with the key that signed it: %w", k.Ref(), k.Arguments, err, k.Ref(), kb.ErrFailedPrecondition)
		}
		return k.Arguments, nil
	}
	return nil, nil
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

// currentKernel gets the kernel that jobs of a profile have today into the
// cache and returns its folder; empty when there is none but stock.
func (a *app) currentKernel(ctx context.Context, name, cache string) (string, error) {
	profile, err := a.profile(ctx, name)
	if isMissing(err) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	for _, v := range profile.GetVersions() {
		if k := v.GetKernel(); k.GetVersion() == profile.GetDefaultVersion() && v.GetQuarantine() == nil {
			return a.fetchKernel(ctx, v, filepath.Join(cache, "current"))
		}
	}
	return "", nil
}

// fetchKernel leaves image and manifest in a folder of the image's digest.
func (a *app) fetchKernel(ctx context.Context, v *api.ProfileVersion, dir string) (string, error) {
	k := v.GetKernel()
	fail := func(err error) (string, error) {
		return "", fmt.Errorf("current kernel %q: %w", refOf(v), err)
	}
	dir = filepath.Join(dir, strings.TrimPrefix(k.GetImageDigest(), "sha256:"))
	image := filepath.Join(dir, build.ImageFile)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fail(err)
	}
	now, err := catalog.DescribeFile(image, catalog.MaxImage)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fail(err)
	}
	if now.Digest != k.GetImageDigest() {
		if err := a.fetch(ctx, k.GetImageDigest(), k.GetImageSize(), image); err != nil {
			return fail(err)
		}
	}
	manifest, err := a.manifest(ctx, v)
	if err == nil {
		err = manifest.Write(dir)
	}
	if err != nil {
		return fail(err)
	}
	return dir, nil
}

// manifest is the one that was registered with a version, or what the version
// itself says of its kernel.
func (a *app) manifest(ctx context.Context, v *api.ProfileVersion) (build.Manifest, error) {
	text, err := a.document(ctx, v, documentProvenance)
	if err != nil {
		return build.Manifest{}, err
	}
	if text != nil {
		return build.ParseManifest(text)
	}
	k := v.GetKernel()
	return build.Manifest{
		Format: build.ManifestFormat, Name: k.GetProfile(), Release: k.GetRelease(), BuildID: k.GetBuildId(), Architecture: k.GetArchitecture(),
		Image: build.File{Name: build.ImageFile, Digest: k.GetImageDigest(), Size: int64(k.GetImageSize())},
	}, nil
}

// fetch gets a stored file of so many bytes, and checks its digest. It stops where
// the file has to end.
func (a *app) fetch(ctx context.Context, digest string, size uint64, path string) error {
	conn, err := a.dial()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := api.NewCatalogServiceClient(conn).FetchArtifact(ctx, &api.FetchArtifactRequest{Digest: digest})
	if err != nil {
		return err
	}
	return atomicfile.Fill(path, 0o600, func(file *os.File) error {
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
				return fmt.Errorf("the broker sends more than the %d bytes of artifact %s: %w", size, digest, kb.ErrInvalid)
			}
			if _, err := file.Write(part.GetData()); err != nil {
				return err
			}
			left -= n
		}
		got, err := catalog.DescribeFile(file.Name(), size)
		if err == nil && got.Digest != digest {
			err = fmt.Errorf("the broker's file has digest %s, not %s: %w", got.Digest, digest, kb.ErrInvalid)
		}
		return err
	})
}

// document gets one of a version's documents as text; empty when it has none
// of that name. It is a builder's, and read into memory: the broker bounds it, and
// so does this.
func (a *app) document(ctx context.Context, v *api.ProfileVersion, name string) ([]byte, error) {
	for _, d := range v.GetDocuments() {
		if d.GetName() != name {
			continue
		}
		if d.GetSize() > catalog.MaxDocument {
			return nil, fmt.Errorf("document %q has %d bytes, at most %d are read; register the kernel as a new version, with a smaller one: %w",
				name, d.GetSize(), catalog.MaxDocument, kb.ErrInvalid)
		}
		return a.content(ctx, d.GetDigest(), d.GetSize())
	}
	return nil, nil
}

// content gets a stored file's bytes, of which there are so many.
func (a *app) content(ctx context.Context, digest string, size uint64) (content []byte, err error) {
	dir, err := os.MkdirTemp("", "kernelctl-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	path := filepath.Join(dir, "content")
	if err := a.fetch(ctx, digest, size, path); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
}
