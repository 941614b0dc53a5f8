// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/retryinfo"
)

// sent is what a link sent in a bubble, and when.
type sent struct {
	grpc.ClientStream
	mu    sync.Mutex
	beats []time.Time
	every []time.Duration
}

func (s *sent) Send(m *api.ConnectRequest) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.beats = append(s.beats, time.Now())
	s.every = append(s.every, m.GetHeartbeat().GetEvery().AsDuration())
	return nil
}

func (*sent) Recv() (*api.ConnectResponse, error) { return nil, errors.New("not asked") }

// take returns what was sent since.
func (s *sent) take() (beats []time.Time, every []time.Duration) {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	beats, every = s.beats, s.every
	s.beats, s.every = nil, nil
	return beats, every
}

func heartbeat(every, spread time.Duration) *api.Heartbeat {
	return &api.Heartbeat{Every: durationpb.New(every), Spread: durationpb.New(spread)}
}

// The first heartbeat says that the agent keeps an interval. It is the one of before
// until the broker says another, and a link says with each one what it keeps.
func TestHeartbeatsKeepTheBrokersInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &Link{}
		l.rhythm.begin()
		ctx, cancel := context.WithCancel(t.Context())
		stream, done := &sent{}, make(chan error, 1)
		go func() { done <- l.send(ctx, stream, nil) }()
		if beats, every := stream.take(); len(beats) != 1 || every[0] != heartbeatEvery {
			t.Fatalf("at once: %v", every)
		}
		time.Sleep(20*time.Second + time.Millisecond)
		if beats, _ := stream.take(); len(beats) != 4 {
			t.Errorf("%d heartbeats in 20 s to a broker that says nothing", len(beats))
		}
		l.pace(heartbeat(50*time.Second, 0))
		time.Sleep(51 * time.Second)
		if beats, every := stream.take(); len(beats) < 1 || len(beats) > 2 || every[0] != 50*time.Second {
			t.Errorf("in the first 50 s: %v", every)
		}
		time.Sleep(500 * time.Second)
		if beats, _ := stream.take(); len(beats) != 10 {
			t.Errorf("%d heartbeats in 500 s", len(beats))
		}
		l.pace(heartbeat(50*time.Second, 0)) // nothing new
		l.pace(heartbeat(time.Nanosecond, 0))
		time.Sleep(51 * time.Second)
		if beats, every := stream.take(); len(beats) < 10 || len(beats) > 11 || every[0] != heartbeatEvery {
			t.Errorf("%d heartbeats in 51 s of a broker that wants too many, every %v", len(beats), every[0])
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// Agents that connect at once, and are told the same, do not send at once.
func TestHeartbeatsAreSpread(t *testing.T) {
	r := rhythm{every: 50 * time.Second}
	tenths := map[int]int{}
	for range 1000 {
		tenths[int(r.first()/(5*time.Second))]++
	}
	for n := range 10 {
		if tenths[n] < 20 {
			t.Errorf("%d of 1000 begin in tenth %d", tenths[n], n)
		}
	}
}

// What a broker may say is bounded, and no longer holds for the next broker. A broker
// that answers no heartbeats may be silent.
func TestWhatABrokerMaySay(t *testing.T) {
	l := &Link{}
	l.rhythm.begin()
	l.pace(&api.Heartbeat{Number: 7})
	if r := l.paced(); r.silence() != 0 || r.interval() != heartbeatEvery {
		t.Errorf("an answer without an interval: %+v", r)
	}
	l.pace(heartbeat(24*time.Hour, 24*time.Hour))
	r := l.paced()
	if r.interval() != maxEvery || r.spread != maxSpread || r.silence() < 2*maxEvery {
		t.Errorf("a day: %+v", r)
	}
	if pingEvery <= maxEvery {
		t.Error("pings beside heartbeats")
	}
	l.mu.Lock()
	l.rhythm.begin()
	l.mu.Unlock()
	if r := l.paced(); r.silence() != 0 || r.interval() != heartbeatEvery || r.spread != maxSpread {
		t.Errorf("the next stream: %+v", r)
	}
}

// A broker that answers no more is cut off, and dialled again.
func TestASilentBrokerIsCutOff(t *testing.T) {
	t.Parallel()
	l, s := pair(t)
	c := s.next(t)
	until(t, l, "the stream", func(s Status) bool { return s.Connected })
	l.mu.Lock()
	l.rhythm.every, l.rhythm.late = time.Millisecond, 0
	l.mu.Unlock()
	s.next(t)
	if err := c.Context().Err(); err == nil {
		t.Error("the old connection is open")
	}
}

// When a stream broke, and why, decides when to come back.
func TestPauses(t *testing.T) {
	told := func(wait time.Duration) error { return retryinfo.Error(wait, "many agents connect at once") }
	gone, aborted := status.Error(codes.Unavailable, "gone"), status.Error(codes.Aborted, "a newer stream")
	for name, c := range map[string]struct {
		errs           []error
		lasted, spread time.Duration
		least, most    time.Duration // of the last pause
	}{
		"told":                             {[]error{told(20 * time.Second)}, 0, time.Minute, 20 * time.Second, 22500 * time.Millisecond},
		"told too much":                    {[]error{told(24 * time.Hour)}, 0, 0, maxTold, maxTold * 9 / 8},
		"told nothing, once":               {[]error{aborted}, 0, time.Minute, 0, minBackoff},
		"told nothing, four times":         {[]error{gone, gone, gone, gone}, 0, time.Minute, 0, 8 * minBackoff},
		"told nothing, many times":         {[]error{8: gone}, 0, time.Minute, 0, maxBackoff},
		"the broker went away":             {[]error{gone}, time.Hour, 20 * time.Second, 0, 20 * time.Second},
		"a broker of before went away":     {[]error{gone}, time.Hour, 0, 0, minBackoff},
		"another stream, after a long one": {[]error{8: aborted}, time.Hour, 20 * time.Second, 0, minBackoff},
	} {
		var shortest, longest time.Duration = time.Hour, 0
		for range 2000 {
			var r retry
			var pause time.Duration
			for _, err := range c.errs {
				pause = r.pause(err, c.lasted, c.spread)
			}
			shortest, longest = min(shortest, pause), max(longest, pause)
		}
		if shortest < c.least || longest > c.most {
			t.Errorf("%s: %v to %v, want %v to %v", name, shortest, longest, c.least, c.most)
		}
		if width := c.most - c.least; longest-shortest < width/2 {
			t.Errorf("%s: %v to %v is hardly any jitter", name, shortest, longest)
		}
	}
}

// A refusal's time is obeyed: there is no second try before it.
func TestComeBackWhenTold(t *testing.T) {
	listener, err := net.Listen("tcp", anyPort)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var tries []time.Time
	const wait = 500 * time.Millisecond
	g := grpc.NewServer(grpc.StreamInterceptor(func(any, grpc.ServerStream, *grpc.StreamServerInfo, grpc.StreamHandler) error {
		mu.Lock()
		defer mu.Unlock()
		tries = append(tries, time.Now())
		return retryinfo.Error(wait, "later")
	}))
	api.RegisterNodeServiceServer(g, &server{})
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := g.Serve(listener); err != nil {
			t.Error(err)
		}
	})
	defer serving.Wait()
	defer g.Stop()
	l, err := New(Options{Broker: listener.Addr().String(), Log: slog.New(slog.DiscardHandler), Hello: func() kb.Hello { return kb.Hello{Node: "n1"} }})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { l.Run(ctx) })
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		mu.Lock()
		n := len(tries)
		mu.Unlock()
		if n >= 3 {
			break
		}
	}
	cancel()
	running.Wait()
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(tries) < 3 {
		t.Fatalf("%d tries", len(tries))
	}
	for i, at := range tries[1:] {
		if passed := at.Sub(tries[i]); passed < wait {
			t.Errorf("try %d came %v after the one before", i+2, passed)
		}
	}
}

// What a link dialled can be closed, and is not kept longer than it is open.
func TestDialledConnections(t *testing.T) {
	listener, err := net.Listen("tcp", anyPort)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	d := dialled{by: Dial}
	var conns []net.Conn
	for n := range 10 {
		conn, err := d.dial(t.Context(), listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if conns = append(conns, conn); n < 8 {
			_ = conn.Close()
		}
	}
	if len(d.conns) != 2 {
		t.Errorf("%d connections are kept, 2 are open", len(d.conns))
	}
	d.cut()
	for _, conn := range conns {
		if !isClosed(conn) {
			t.Error("one is open")
		}
	}
}
