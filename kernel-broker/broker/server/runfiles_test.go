// SPDX-License-Identifier: Apache-2.0

package server

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
)

// openRuns awaits files of every node until it delivers.
type openRuns struct {
	oneRun
	over map[uint64]bool
}

func (r *openRuns) AwaitsRun(node string, id uint64) error {
	if r.over[id] {
		return fmt.Errorf("run %d is over: %w", id, kb.ErrFailedPrecondition)
	}
	return nil
}

func digestOfText(text string) string {
	return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(text)))
}

// put uploads a file that has a text of its own.
func put(t *testing.T, s api.RunServiceServer, node string, run uint64, text string) error {
	t.Helper()
	file := &api.RunFile{Name: kb.ResultFile, Digest: digestOfText(text), Size: uint64(len(text))}
	err := s.UploadRunFile(&uploading{ctx: t.Context(), messages: []*api.UploadRunFileRequest{{Node: node, RunId: run, File: file, Data: []byte(text)}}})
	return statusOf(err)
}

// A node that uploads and never delivers fills no more than two deliveries would.
func TestFilesOfOneNodeInARun(t *testing.T) {
	runs, store := &openRuns{over: map[uint64]bool{}}, opened(t)
	s := NewRunService(RunOptions{Runs: runs, Artifacts: store, MaxBytes: 100})
	for i := range maxRunUploads {
		if err := put(t, s, "n1", 7, fmt.Sprint("file ", i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := put(t, s, "n1", 7, "one more"); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), `node "n1" has uploaded 8 files`) {
		t.Errorf("the ninth file: %v", err)
	}
	if err := put(t, s, "n1", 7, "file 3"); err != nil {
		t.Errorf("one of the eight again: %v", err)
	}
	if _, err := store.Stat(digestOfText("one more")); !errors.Is(err, kb.ErrNotFound) {
		t.Errorf("what was refused is stored: %v", err)
	}
	for _, other := range []struct {
		node string
		run  uint64
	}{{"n2", 7}, {"n1", 8}} {
		if err := put(t, s, other.node, other.run, "one more"); err != nil {
			t.Errorf("%+v: %v", other, err)
		}
	}
	// By bytes.
	long := strings.Repeat("x", 99)
	for i := range 2 {
		if err := put(t, s, "n3", 7, long+fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := put(t, s, "n3", 7, "x"); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "201 bytes, at most 200") {
		t.Errorf("a byte too many: %v", err)
	}
}

// What was delivered is not counted any more, nor what is of runs that are over.
func TestRunFilesAreForgotten(t *testing.T) {
	runs := &openRuns{over: map[uint64]bool{}}
	s := NewRunService(RunOptions{Runs: runs, Artifacts: opened(t), MaxBytes: 100})
	kept := s.(*runService).files
	for run := range uint64(3) {
		if err := put(t, s, "n1", run, "result"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.DeliverRun(t.Context(), &api.DeliverRunRequest{Node: "n1", RunId: 0}); err != nil {
		t.Fatal(err)
	}
	runs.over[1] = true
	if err := put(t, s, "n1", 3, "result"); err != nil {
		t.Fatal(err)
	}
	if len(kept.of) != 2 || kept.of[runNode{2, "n1"}] == nil || kept.of[runNode{3, "n1"}] == nil {
		t.Errorf("kept are %v", kept.of)
	}
}

// held is an upload that goes on until the test ends it.
type held struct {
	uploading
	begun, end chan struct{}
}

func (h *held) Recv() (*api.UploadRunFileRequest, error) {
	if len(h.messages) > 0 {
		return h.uploading.Recv()
	}
	close(h.begun)
	<-h.end
	return nil, io.EOF
}

// Nodes that send a byte a minute hold their own places, and none of builders.
func TestUploadsOfNodes(t *testing.T) {
	s := NewRunService(RunOptions{Runs: &openRuns{}, Artifacts: opened(t), MaxBytes: 100, Uploads: 3})
	hold := func(node string) (end func()) {
		text := "slow " + node
		h := &held{uploading: uploading{ctx: t.Context(), messages: []*api.UploadRunFileRequest{{Node: node, RunId: 7, Data: []byte(text),
			File: &api.RunFile{Name: kb.ResultFile, Digest: digestOfText(text), Size: uint64(len(text))}}}},
			begun: make(chan struct{}), end: make(chan struct{})}
		done := make(chan error, 1)
		go func() { done <- s.UploadRunFile(h) }()
		<-h.begun
		return func() {
			close(h.end)
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
	later := func(what string, err error) {
		var later *kb.RetryableError
		if status.Code(err) != codes.ResourceExhausted && !errors.As(err, &later) {
			t.Errorf("%s: %v", what, err)
		}
	}
	first, second := hold("n1"), hold("n2")
	later("a second one of a node", put(t, s, "n1", 7, "more"))
	if err := put(t, s, "n3", 7, "more"); err != nil {
		t.Errorf("another node: %v", err)
	}
	third := hold("n3")
	later("one above all", put(t, s, "n4", 7, "more"))
	first()
	if err := put(t, s, "n4", 7, "more"); err != nil {
		t.Errorf("when a place is free: %v", err)
	}
	second()
	third()
}

// Before a result is stored there is to be room for it and for all that is stored and not delivered.
func TestRoomForResults(t *testing.T) {
	runs, store := &openRuns{over: map[uint64]bool{}}, opened(t)
	s := NewRunService(RunOptions{Runs: runs, Artifacts: store, MaxBytes: 100})
	for i, run := range []uint64{7, 8, 9} {
		if err := put(t, s, "n1", run, fmt.Sprintf("file %d", i)); err != nil { // of six bytes
			t.Fatal(err)
		}
		switch run {
		case 7:
			if _, err := s.DeliverRun(t.Context(), &api.DeliverRunRequest{RunId: 7, Node: "n1"}); err != nil {
				t.Fatal(err)
			}
		case 8:
			runs.over[8] = true
		}
	}
	runs.full = fmt.Errorf("half of the store: %w", kb.ErrExhausted)
	if err := put(t, s, "n2", 9, "ab"); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "half of the store") {
		t.Errorf("%v", err)
	}
	if _, err := store.Stat(digestOfText("ab")); !errors.Is(err, kb.ErrNotFound) {
		t.Errorf("what was refused is stored: %v", err)
	}
	if fmt.Sprint(runs.rooms) != "[6 6 6 8]" {
		t.Errorf("room was wanted for %d bytes", runs.rooms)
	}
}
