// SPDX-License-Identifier: Apache-2.0

package link

import (
	"io"
	"log/slog"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/decide"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/silence"
)

// said is a stream on which the broker has said all that it will.
type said struct {
	api.NodeService_ConnectClient
	left []*api.ConnectResponse
}

func (s *said) Recv() (*api.ConnectResponse, error) {
	if len(s.left) == 0 {
		return nil, io.EOF
	}
	next := s.left[0]
	s.left = s.left[1:]
	return next, nil
}

// FuzzReceive lets a broker say anything, twice. The agent reads it, and whatever
// became of the desired state, decides on it without harm: no kernel is booted that was
// not loaded, and on an unproven one no slurmd is started.
func FuzzReceive(f *testing.F) {
	for _, m := range []*api.ConnectResponse{
		{Message: &api.ConnectResponse_Desired{Desired: &api.Desired{Generation: 3, Token: "t", RunningProfile: "mitgcm", RunningVersion: 1, Jobs: []uint32{7},
			SlurmdAllowed: true, SlurmdStart: 2, SlurmdNotBefore: timestamppb.New(time.Unix(1, 2)),
			Kernel: &api.KernelSpec{Profile: "mitgcm", Version: 1, ImageDigest: "sha256:x", ImageSize: 3, Arguments: []string{"quiet"}, BuildId: "ab"}}}},
		{Message: &api.ConnectResponse_Desired{Desired: &api.Desired{Generation: 1, SlurmdNotBefore: &timestamppb.Timestamp{Seconds: 1 << 62, Nanos: -1}}}},
		{Message: &api.ConnectResponse_JobEnding{JobEnding: &api.JobEndingAnswer{Query: 1, Kept: true}}},
		{Message: &api.ConnectResponse_Snapshot{Snapshot: "x"}},
		{Message: &api.ConnectResponse_Runs{Runs: &api.DesiredRuns{Runs: []*api.DesiredRun{{RunId: 1, JobId: 7, Collectors: []string{"io"}}}}}},
		{},
	} {
		text, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text, []byte{})
	}
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	f.Fuzz(func(t *testing.T, first, second []byte) {
		stream := &said{}
		for _, text := range [][]byte{first, second} {
			m := &api.ConnectResponse{}
			if proto.Unmarshal(text, m) != nil {
				return
			}
			stream.left = append(stream.left, m)
		}
		runs := 0
		l := &Link{changed: make(chan struct{}, 1), asked: map[uint64]chan bool{1: make(chan bool, 1)}, options: Options{
			Snapshot: func(string) error { return nil }, Runs: func(w []kb.DesiredRun) { runs += len(w) }, Log: slog.New(slog.DiscardHandler),
		}}
		watch := silence.New(func() time.Duration { return 0 })
		defer watch.Stop()
		if err := l.receive(stream, watch); err == nil {
			t.Error("a stream without an end")
		}
		boot := kb.Boot{BootID: "b", BuildID: "cd", Token: "u"}
		action := decide.Next(l.Status().Desired, decide.Observed{Boot: boot, Fresh: true}, now)
		if action.Kind == decide.Execute || action.Kind == decide.Announce {
			t.Errorf("nothing is loaded, and the agent goes on to %+v", action)
		}
		if desired := l.Status().Desired; action.Kind == decide.StartSlurmd && (desired == nil || !desired.Attested) {
			t.Errorf("slurmd on a kernel that nobody vouches for: %+v", action)
		}
	})
}
