package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/schollz/progressbar/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/catalog"
)

const chunkSize = 256 << 10

// upload stores a file in the broker unless it is there.
func (a *app) upload(ctx context.Context, file catalog.Artifact) (err error) {
	has, err := a.stored(ctx, file)
	if err != nil {
		return err
	}
	if has {
		a.say("%s is stored already (%s)", file.Path, bytesOf(file.Size))
		return nil
	}
	source, err := os.Open(file.Path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, source.Close()) }()
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
	progress := a.progress("uploading "+filepath.Base(file.Path), file.Size)
	sending := sendFile(stream, file, io.TeeReader(source, progress))
	if sending != nil && !errors.Is(sending, io.EOF) {
		return fmt.Errorf("%s: %w", file.Path, sending)
	}
	// When the broker ended the stream early, its answer says why.
	if _, err := stream.CloseAndRecv(); err != nil {
		return err
	}
	progress.done()
	return nil
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

// stored asks whether the broker has a file, by fetching what is past its end.
func (a *app) stored(ctx context.Context, file catalog.Artifact) (bool, error) {
	conn, err := a.dial()
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	stream, err := api.NewCatalogServiceClient(conn).FetchArtifact(ctx, &api.FetchArtifactRequest{Digest: file.Digest, Offset: file.Size})
	if err == nil {
		_, err = stream.Recv()
	}
	switch {
	case errors.Is(err, io.EOF):
		return true, nil
	case err == nil, isMissing(err), status.Code(err) == codes.OutOfRange:
		// Longer or shorter than its content: damaged, and replaced.
		return false, nil
	}
	return false, err
}

// progress shows how far something is: a bar on a terminal, a line at the end
// elsewhere.
type progress struct {
	app  *app
	what string
	size uint64
	bar  *progressbar.ProgressBar
}

func (a *app) progress(what string, size uint64) *progress {
	p := &progress{app: a, what: what, size: size}
	if a.Terminal {
		p.bar = progressbar.NewOptions64(int64(size), progressbar.OptionSetWriter(a.Stderr),
			progressbar.OptionSetDescription(what), progressbar.OptionShowBytes(true),
			progressbar.OptionSetWidth(30), progressbar.OptionOnCompletion(func() { _, _ = fmt.Fprintln(a.Stderr) }))
	}
	return p
}

// Write counts the bytes that went through.
func (p *progress) Write(data []byte) (int, error) {
	if p.bar != nil {
		// A bar that cannot be drawn is no reason to stop.
		_ = p.bar.Add(len(data))
	}
	return len(data), nil
}

func (p *progress) done() {
	if p.bar == nil {
		p.app.say("%s: %s done", p.what, bytesOf(p.size))
	}
}
