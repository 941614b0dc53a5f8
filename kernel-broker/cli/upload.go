// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kernelbroker/kernelbroker/kernel-broker/api/client"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/catalog"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/rounded"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/safeopen"
)

const chunkSize = 256 << 10

// Tries of an upload that is interrupted, and the pauses between them.
const (
	uploadTries    = 7
	uploadPauseMin = 100 * time.Millisecond
	uploadPauseMax = 10 * time.Second
)

// upload stores a file in the broker unless it exists there. After an interruption it starts again.
func (a *app) upload(ctx context.Context, file catalog.Artifact) (err error) {
	source, _, err := safeopen.Open(file.Path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	name := filepath.Base(file.Path)
	bar, done := a.progress("uploading "+name, file.Size)
	pause := uploadPauseMin
	for try := 1; ; try++ {
		stored, err := a.stored(ctx, file.Digest)
		if err == nil && stored && try == 1 {
			a.say("%s is stored already (%s)", name, rounded.Size(file.Size))
			return nil
		}
		if err == nil && !stored {
			err = a.uploadOnce(ctx, file, source, bar)
		}
		if err == nil {
			done()
			return nil
		}
		wait, retry := client.RetryAfter(err)
		if !retry && !passing(err) || try == uploadTries {
			return err
		}
		a.say("%s: %s; trying again", name, plain(status.Convert(err).Message()))
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(max(wait, pause)):
		}
		pause = min(4*pause, uploadPauseMax)
	}
}

// passing reports errors that may pass, so that a retry makes sense.
func passing(err error) bool {
	return slices.Contains([]codes.Code{codes.Unavailable, codes.Aborted, codes.DeadlineExceeded}, status.Code(err))
}

// uploadOnce is one try.
func (a *app) uploadOnce(ctx context.Context, file catalog.Artifact, source io.ReadSeeker, bar drawn) error {
	if _, err := source.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("%s: %w", file.Path, err)
	}
	_ = bar.Set64(0) // as in Write
	conn, err := a.dial()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := api.NewCatalogServiceClient(conn).UploadArtifact(ctx)
	if err != nil {
		return err
	}
	sending := sendFile(stream, file, io.TeeReader(source, bar))
	if sending != nil && !errors.Is(sending, io.EOF) {
		return fmt.Errorf("%s: %w", file.Path, sending)
	}
	// When the broker ended the stream early, its answer has the reason.
	_, err = stream.CloseAndRecv()
	return err
}

func sendFile(stream api.CatalogService_UploadArtifactClient, file catalog.Artifact, source io.Reader) error {
	message := &api.UploadArtifactRequest{Digest: file.Digest, Size: file.Size}
	if err := stream.Send(message); err != nil {
		return err
	}
	buffer := make([]byte, chunkSize)
	for {
		n, err := io.ReadFull(source, buffer)
		if n > 0 {
			if err := stream.Send(&api.UploadArtifactRequest{Data: buffer[:n]}); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil
		}
		if err != nil {
			// Not io.EOF: that would mean that the broker ended the stream.
			return fmt.Errorf("reading: %w", err)
		}
	}
}

// progress shows how far something is: a bar on a terminal, a line at the end
// elsewhere.
func (a *app) progress(what string, size uint64) (bar drawn, done func()) {
	done = func() { a.say("%s: %s done", what, rounded.Size(size)) }
	to := io.Discard
	if a.Terminal {
		to, done = a.Stderr, func() {}
	}
	return drawn{progressbar.NewOptions64(int64(size), progressbar.OptionSetWriter(to),
		progressbar.OptionSetDescription(what), progressbar.OptionShowBytes(true),
		progressbar.OptionSetWidth(30), progressbar.OptionOnCompletion(func() { _, _ = fmt.Fprintln(to) }))}, done
}

// drawn is a bar that counts what is written to it. That it cannot be drawn is no reason to stop.
type drawn struct{ *progressbar.ProgressBar }

func (d drawn) Write(data []byte) (int, error) {
	_ = d.Add(len(data))
	return len(data), nil
}

func (a *app) artifactCommand() *cobra.Command {
	list := a.command("list", "List stored files and what uses them", cobra.NoArgs, a.artifactList)
	var dryRun bool
	gc := a.command("gc", "Remove unused files", cobra.NoArgs, func(ctx context.Context, _ []string) error { return a.artifactCollect(ctx, dryRun) })
	gc.Flags().BoolVar(&dryRun, "dry-run", false, "only show the changes")
	a.careful(gc, func(ctx context.Context, _ []string) error { return a.artifactCollect(ctx, true) })
	return noun("artifact", "Files in the broker's store", list, gc)
}

func (a *app) artifactList(ctx context.Context, _ []string) error {
	response, err := call(ctx, a, api.NewCatalogServiceClient, api.CatalogServiceClient.ListArtifacts, &api.ListArtifactsRequest{})
	if err != nil {
		return err
	}
	return a.show(response, func(p *page) {
		artifactRows(p, response.GetArtifacts())
		limit := "no limit"
		if response.GetLimitBytes() > 0 {
			limit = "of " + rounded.Size(response.GetLimitBytes())
		}
		p.line("%s, %s %s", count(len(response.GetArtifacts()), "file"), rounded.Size(response.GetUsedBytes()), limit)
	})
}

func artifactRows(p *page, files []*api.Artifact) {
	if len(files) == 0 {
		return
	}
	p.head("DIGEST", "SIZE", zoned("USED", newest(files, func(f *api.Artifact) time.Time { return f.GetUsed().AsTime() })), "NEEDED BY")
	for _, f := range files {
		by := cmp.Or(strings.Join(f.GetNeededBy(), ", "), "nothing")
		digest := strings.TrimPrefix(f.GetDigest(), "sha256:")
		p.row(short(digest), rounded.Size(f.GetSize()), minute(f.GetUsed().AsTime()), by)
	}
}

func (a *app) artifactCollect(ctx context.Context, dryRun bool) error {
	response, err := call(ctx, a, api.NewCatalogServiceClient, api.CatalogServiceClient.CollectArtifacts, &api.CollectArtifactsRequest{DryRun: dryRun})
	if err != nil {
		return err
	}
	var freed uint64
	for _, f := range response.GetRemoved() {
		freed += f.GetSize()
	}
	a.say("%s %s, %s", either(dryRun, "would remove", "removed"), count(len(response.GetRemoved()), "file"), rounded.Size(freed))
	if len(response.GetRemoved()) == 0 && a.isTable() {
		return nil
	}
	return a.show(response, func(p *page) { artifactRows(p, response.GetRemoved()) })
}

// stored reports whether the broker has a file.
func (a *app) stored(ctx context.Context, digest string) (bool, error) {
	response, err := call(ctx, a, api.NewCatalogServiceClient, api.CatalogServiceClient.GetArtifact, &api.GetArtifactRequest{Digest: digest})
	if err != nil {
		return false, fmt.Errorf("artifact %s: %w", digest, err)
	}
	return response.GetStored(), nil
}
