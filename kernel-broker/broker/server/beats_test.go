// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/catalog"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/controller"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/retryinfo"
	"github.com/kernelbroker/kernelbroker/tests/support/memstore"
)

// line is the stream of an agent that a test plays.
type line struct {
	grpc.ServerStream
	ctx  context.Context
	in   chan *api.ConnectRequest
	out  chan *api.ConnectResponse
	done chan error
}

func (l *line) Context() context.Context { return l.ctx }

func (l *line) Recv() (*api.ConnectRequest, error) {
	select {
	case m, more := <-l.in:
		if !more {
			return nil, io.EOF
		}
		return m, nil
	case <-l.ctx.Done():
		return nil, l.ctx.Err()
	}
}

func (l *line) Send(m *api.ConnectResponse) error {
	l.out <- m
	return nil
}

// beat sends a heartbeat; every is 0 for an agent that knows no interval.
func (l *line) beat(every time.Duration) {
	h := &api.Heartbeat{}
	if every > 0 {
		h.Every = durationpb.New(every)
	}
	l.in <- &api.ConnectRequest{Message: &api.ConnectRequest_Heartbeat{Heartbeat: h}}
}

// told is what the broker answered since, or nil.
func (l *line) told() *api.Heartbeat {
	synctest.Wait()
	for {
		select {
		case m := <-l.out:
			if h := m.GetHeartbeat(); h != nil {
				return h
			}
		default:
			return nil
		}
	}
}

func (l *line) open() bool {
	synctest.Wait()
	return len(l.done) == 0
}

// cluster is a controller whose nodes take turns as a test says.
type cluster struct {
	*controller.Controller
	rhythm controller.Rhythm
	turn   func() time.Duration
}

func (c *cluster) Rhythm() controller.Rhythm { return c.rhythm }
func (c *cluster) Turn(string) time.Duration { return c.turn() }

// connects begins a stream in a bubble.
func connects(t *testing.T, c *cluster) *line {
	t.Helper()
	if c.Controller == nil {
		kept := memstore.New()
		t.Cleanup(func() { _ = kept.Close() })
		quiet := slog.New(slog.DiscardHandler)
		made, err := controller.New(t.Context(), controller.Options{Store: kept, Catalog: catalog.New(catalog.Options{Store: kept, Log: quiet}), Slurm: noSlurm{}, Log: quiet})
		if err != nil {
			t.Fatal(err)
		}
		c.Controller = made
	}
	if c.turn == nil {
		c.turn = func() time.Duration { return 0 }
	}
	ctx, cancel := context.WithCancel(t.Context())
	l := &line{ctx: ctx, in: make(chan *api.ConnectRequest, 10), out: make(chan *api.ConnectResponse, 100), done: make(chan error, 1)}
	t.Cleanup(cancel)
	l.in <- &api.ConnectRequest{Message: &api.ConnectRequest_Hello{Hello: &api.Hello{Node: "n1", BootId: "8ad0c5a4-0000-4000-8000-000000000000",
		Release: "6.1.0", Inventory: &api.Inventory{Architecture: "x86_64"}}}}
	service := NewNodeService(c, endlessTerm{})
	go func() { l.done <- service.Connect(l) }()
	return l
}

type noSlurm struct{ controller.Slurm }

// An agent that keeps an interval is told the one that holds now with each heartbeat,
// and is gone when it keeps none of two. One that knows no interval has no answer.
func TestAnswersToHeartbeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{rhythm: controller.Rhythm{Every: 50 * time.Second, Spread: 20 * time.Second}}
		l := connects(t, c)
		l.beat(5 * time.Second)
		if h := l.told(); h.GetEvery().AsDuration() != 50*time.Second || h.GetSpread().AsDuration() != 20*time.Second || h.GetNumber() != 0 {
			t.Errorf("told %v", h)
		}
		for range 5 {
			time.Sleep(99 * time.Second) // one is lost each time
			if !l.open() {
				t.Fatal("ended within two heartbeats")
			}
			l.beat(50 * time.Second)
			if l.told() == nil {
				t.Error("no answer")
			}
		}
		c.rhythm.Every = 5 * time.Second
		l.beat(50 * time.Second)
		l.told()
		time.Sleep(100 * time.Second)
		if !l.open() {
			t.Fatal("ended although the agent may not have heard of the shorter interval")
		}
		l.beat(5 * time.Second)
		l.told()
		time.Sleep(time.Minute)
		if l.open() {
			t.Fatal("the stream is open without a word for a minute")
		}
		if err := <-l.done; status.Code(err) != codes.Unavailable {
			t.Errorf("it ended with %v", err)
		}
	})
}

// An agent of before says no interval, sends a heartbeat every 5 s and reads no answers.
func TestHeartbeatsOfFormerAgents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := connects(t, &cluster{rhythm: controller.Rhythm{Every: 50 * time.Second}})
		for range 100 {
			time.Sleep(5 * time.Second)
			l.beat(0)
			if h := l.told(); h != nil {
				t.Fatalf("told %v", h)
			}
		}
		if !l.open() {
			t.Fatal("ended")
		}
		time.Sleep(time.Minute)
		if l.open() {
			t.Error("the stream is open without a word for a minute")
		}
	})
}

// An agent whose turn is soon waits for it, and attaches then; one whose turn is late
// is told when it is.
func TestTurnsOfAgents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		at := func(after time.Duration) func() time.Duration {
			return func() time.Duration { return max(0, after-time.Since(begin)) }
		}
		c := &cluster{turn: at(3 * time.Second)}
		l := connects(t, c)
		if l.beat(5 * time.Second); l.told() != nil {
			t.Error("attached before its turn")
		}
		time.Sleep(3 * time.Second)
		if l.told() == nil || !l.open() {
			t.Error("not attached when its turn was")
		}
		late := connects(t, &cluster{Controller: c.Controller, turn: at(time.Minute)})
		err := <-late.done
		var retry *kb.RetryableError
		if !errors.As(err, &retry) || retry.Wait != 57*time.Second {
			t.Fatalf("refused with %v", err)
		}
		if wait, said := retryinfo.After(statusOf(err)); !said || wait != retry.Wait {
			t.Errorf("the agent reads %v, %v", wait, said)
		}
	})
}

// endlessTerm is a term that is never over.
type endlessTerm struct{}

func (endlessTerm) Epoch() uint64 { return 1 }
func (endlessTerm) MayAct() error { return nil }
