// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/api/convert"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
)

// RunFile is a file to deliver.
type RunFile struct {
	kb.Document
	Path string
}

// ReportRun says how far the node is with a run, or sends figures with no state.
func (l *Link) ReportRun(ctx context.Context, run uint64, state kb.RunNodeState, reason string, figures []byte) error {
	return l.Send(ctx, convert.RunReportToProto(run, kb.RunReport{State: state, Reason: reason}, figures))
}

// DeliverRun uploads the files that the broker does not have, and has them
// recorded. An error that wraps ErrUnavailable may succeed later;
// any other means that the broker does not take them.
func (l *Link) DeliverRun(ctx context.Context, node string, run uint64, files []RunFile, partial string) error {
	client := api.NewRunServiceClient(l.conn)
	request := &api.DeliverRunRequest{Node: node, RunId: run, Partial: partial}
	for _, f := range files {
		file := convert.RunFileToProto(f.Document)
		if err := upload(ctx, client, node, run, file, f.Path); err != nil {
			return runError(run, err)
		}
		request.Files = append(request.Files, file)
	}
	_, err := client.DeliverRun(ctx, request)
	return runError(run, err)
}

// uploadChunk is sent at a time.
const uploadChunk = 128 << 10

func upload(ctx context.Context, client api.RunServiceClient, node string, run uint64, file *api.RunFile, path string) (err error) {
	have, err := client.GetRunFile(ctx, &api.GetRunFileRequest{Node: node, RunId: run, Digest: file.GetDigest()})
	if err != nil || have.GetStored() {
		return err
	}
	source, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := client.UploadRunFile(ctx)
	if err != nil {
		return err
	}
	message := &api.UploadRunFileRequest{Node: node, RunId: run, File: file}
	buffer := make([]byte, uploadChunk)
	for {
		if err := stream.Send(message); err != nil {
			break // the answer says why
		}
		n, err := io.ReadFull(source, buffer)
		if n == 0 {
			if errors.Is(err, io.EOF) {
				break
			}
			return fmt.Errorf("file %q: %w", path, err)
		}
		message = &api.UploadRunFileRequest{Data: buffer[:n]}
	}
	_, err = stream.CloseAndRecv()
	return err
}

func runError(run uint64, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("run %d: %w: %w", run, kindOf(err), err)
}
