// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/server"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/artifact"
)

// artifacts is the store of files as the API wants it.
type artifacts struct {
	store *artifact.Store
	limit uint64
}

// uploadsWait is when to come back for one who finds too many uploads under way.
const uploadsWait = 5 * time.Second

// toDomain gives the errors of the store the domain's names.
func toDomain(err error) error {
	if errors.Is(err, artifact.ErrUploads) {
		return &kb.RetryableError{Wait: uploadsWait, Err: fmt.Errorf("%w: %w", kb.ErrExhausted, err)}
	}
	for _, known := range []struct{ from, to error }{
		{artifact.ErrInvalidDigest, kb.ErrInvalid}, {artifact.ErrDigestMismatch, kb.ErrInvalid},
		{artifact.ErrTooLarge, kb.ErrInvalid}, {artifact.ErrTruncated, kb.ErrInvalid}, {artifact.ErrOffset, kb.ErrInvalid},
		{artifact.ErrNotFound, kb.ErrNotFound}, {artifact.ErrInUse, kb.ErrUnavailable},
		{artifact.ErrStoreFull, kb.ErrExhausted}, {artifact.ErrDiskFull, kb.ErrExhausted},
	} {
		if errors.Is(err, known.from) {
			return fmt.Errorf("%w: %w", known.to, err)
		}
	}
	return err
}

// Put implements server.Artifacts.
func (a artifacts) Put(ctx context.Context, digest string, size, offset uint64, source io.Reader) (bool, error) {
	d, err := artifact.ParseDigest(digest)
	if err != nil {
		return false, toDomain(err)
	}
	stored, err := a.store.Put(ctx, d, int64(size), int64(offset), source)
	return stored, toDomain(err)
}

// State implements server.Artifacts.
func (a artifacts) State(_ context.Context, digest string) (bool, uint64, error) {
	d, err := artifact.ParseDigest(digest)
	if err != nil {
		return false, 0, toDomain(err)
	}
	stored, size, err := a.store.State(d)
	return stored, uint64(size), toDomain(err)
}

// Open implements server.Artifacts.
func (a artifacts) Open(_ context.Context, digest string) (io.ReadSeekCloser, uint64, error) {
	d, err := artifact.ParseDigest(digest)
	if err != nil {
		return nil, 0, toDomain(err)
	}
	file, err := a.store.Open(d)
	if err != nil {
		return nil, 0, toDomain(err)
	}
	info, err := file.Stat()
	if err != nil {
		return nil, 0, errors.Join(err, file.Close())
	}
	return file, uint64(info.Size()), nil
}

// List implements server.Artifacts.
func (a artifacts) List(ctx context.Context) ([]server.Artifact, uint64, uint64, error) {
	files, used, err := a.store.List(ctx)
	return converted(files), uint64(used), a.limit, toDomain(err)
}

// Collect implements server.Artifacts.
func (a artifacts) Collect(ctx context.Context, dryRun bool) ([]server.Artifact, error) {
	files, err := a.store.Collect(ctx, dryRun)
	return converted(files), toDomain(err)
}

func converted(files []artifact.Stored) []server.Artifact {
	var out []server.Artifact
	for _, f := range files {
		out = append(out, server.Artifact{Digest: f.Digest.String(), Size: uint64(f.Size), Used: f.Used, NeededBy: f.NeededBy, Partial: f.Partial})
	}
	return out
}

// check implements controller.Options.CheckArtifact.
func (a artifacts) check(ctx context.Context, digest string) error {
	d, err := artifact.ParseDigest(digest)
	if err != nil {
		return toDomain(err)
	}
	return toDomain(a.store.Check(ctx, d))
}

// has implements catalog.Options.HasArtifact.
func (a artifacts) has(digest string, size uint64) (bool, error) {
	d, err := artifact.ParseDigest(digest)
	if err != nil {
		return false, err
	}
	return a.store.Has(d, int64(size))
}

// openArtifacts opens the store; who holds which kernel is asked for later,
// when there is a controller to ask.
func openArtifacts(dir string, o artifact.StoreOptions) (artifacts, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return artifacts{}, fmt.Errorf("artifacts: %w", err)
	}
	store, err := artifact.OpenStore(dir, o)
	return artifacts{store: store, limit: uint64(o.Limit)}, err
}
