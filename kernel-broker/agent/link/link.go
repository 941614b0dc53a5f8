// SPDX-License-Identifier: Apache-2.0

// Package link keeps the agent's one stream to the broker: it dials, says hello
// first, keeps the newest desired state, and dials again when the stream breaks.
// It is a whole state and not a command, so only the newest is kept and nothing is
// queued across streams; what the agent has to report it reports again when
// Session changes.
package link

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/api/convert"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/mtls"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/silence"
)

// Times of the connection.
const (
	// dialLimit is for a connection with its handshake, which has to wait for those of
	// all other agents when a broker begins.
	dialLimit = time.Minute
	// pingEvery is longer than the longest interval of heartbeats: their answers are
	// signs of life enough. It is for a broker of 0.2 and before, which answers none.
	pingEvery   = maxEvery + 30*time.Second
	pingTimeout = 5 * time.Second
	// buffer is what the connection keeps for what it reads.
	buffer = 4 << 10
)

// Options of a link.
type Options struct {
	// Broker is its TCP address.
	Broker string
	// Source authenticates node and broker to each other; nil for no TLS.
	Source mtls.Source
	// Dial connects to an address; nil is this package's Dial.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// Hello is called for each stream.
	Hello func() kb.Hello
	// Snapshot gets each new catalog snapshot.
	Snapshot func(text string) error
	// Runs gets all desired profiling runs of the node whenever they changed, and
	// on each new stream; nil for a node without collectors.
	Runs func([]kb.DesiredRun)
	Log  *slog.Logger
}

// Status is the link as seen now.
type Status struct {
	// Desired is the newest one, or nil before the first.
	Desired *kb.DesiredState
	// Session numbers the streams, from 1.
	Session uint64
	// Connected: the stream is up.
	Connected bool
	// Fresh: Desired came over the stream that is up.
	Fresh bool
	// Epoch of the broker that sent Desired; 0 for one without.
	Epoch uint64
}

// Link is safe for concurrent use.
type Link struct {
	options Options
	conn    *grpc.ClientConn
	changed chan struct{}

	dialled dialled
	retry   retry

	mu     sync.Mutex
	status Status
	outbox chan outgoing
	query  uint64
	asked  map[uint64]chan bool // epilogs' queries and numbered heartbeats
	// answers: the broker answers heartbeats that have a number.
	answers bool
	rhythm  rhythm
	epoch   uint64 // the largest that a broker had
}

// outgoing is a message, or a mark that all before it was handed over.
type outgoing struct {
	message *api.ConnectRequest
	passed  chan struct{}
}

// New makes a link; Run brings it up, Close gives the connection back.
func New(options Options) (*Link, error) {
	security := insecure.NewCredentials()
	if options.Source != nil {
		// A new certificate is used from the next connection on; the broker ends
		// one no later than the certificate it began with.
		security = credentials.NewTLS(mtls.ClientConfig(options.Source, ""))
	}
	if options.Dial == nil {
		options.Dial = Dial
	}
	l := &Link{options: options, dialled: dialled{by: options.Dial}, changed: make(chan struct{}, 1), asked: map[uint64]chan bool{}, rhythm: rhythm{late: maxLate}}
	to, several := target(options.Broker)
	var err error
	l.conn, err = grpc.NewClient(to, append(several,
		grpc.WithDisableServiceConfig(),
		grpc.WithTransportCredentials(security),
		grpc.WithContextDialer(l.dialled.dial),
		grpc.WithReadBufferSize(buffer),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingEvery, Timeout: pingTimeout}),
		// The jitter is full: any time up to twice the delay.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: minBackoff, Multiplier: 1.6, Jitter: 1, MaxDelay: maxBackoff},
			MinConnectTimeout: dialLimit,
		}))...)
	if err != nil {
		return nil, fmt.Errorf("broker %q: %w", options.Broker, err)
	}
	return l, nil
}

// Connect begins to connect before Run does, which takes a network and TLS some
// time. Nothing is sent.
func (l *Link) Connect() { l.conn.Connect() }

// Close ends what is left of the connection.
func (l *Link) Close() error { return l.conn.Close() }

// Changed gets a value when Status may have changed.
func (l *Link) Changed() <-chan struct{} { return l.changed }

// Status returns the newest desired state and how the link is.
func (l *Link) Status() Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.status
}

// Run keeps the stream up until the context ends.
func (l *Link) Run(ctx context.Context) {
	for ctx.Err() == nil {
		begun := time.Now()
		err := l.stream(ctx)
		if ctx.Err() != nil {
			return
		}
		pause := l.retry.pause(err, time.Since(begun), l.paced().spread)
		l.options.Log.Warn("stream to the broker ended", "broker", l.options.Broker, "again_in", pause.Round(time.Millisecond), "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// stream runs one stream to its end, and returns why it ended. Where the broker
// ended it, sending only finds the end, and what is received has the reason.
func (l *Link) stream(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	client := api.NewNodeServiceClient(l.conn)
	stream, err := client.Connect(ctx, grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	if err := stream.Send(convert.HelloToProto(l.options.Hello())); errors.Is(err, io.EOF) {
		_, err = stream.Recv()
		return err
	} else if err != nil {
		return err
	}
	outbox := make(chan outgoing, 16)
	l.up(outbox)
	defer l.down()
	failed := make(chan error, 1)
	var sender sync.WaitGroup
	sender.Go(func() { failed <- l.send(ctx, stream, outbox) })
	watch := silence.New(func() time.Duration { return l.paced().silence() })
	defer watch.Stop()
	sender.Go(func() {
		select {
		case <-ctx.Done():
		case <-watch.Silent():
			l.options.Log.Warn("broker answers no heartbeats, connection cut", "broker", l.options.Broker)
			l.dialled.cut()
		}
	})
	err = l.receive(stream, watch) // ends with a failed send as well
	cancel()
	sender.Wait()
	if sent := <-failed; sent != nil && !errors.Is(sent, io.EOF) && status.Code(sent) != codes.Canceled {
		return sent
	}
	return err
}

func (l *Link) send(ctx context.Context, stream api.NodeService_ConnectClient, outbox <-chan outgoing) error {
	beat := time.NewTimer(0) // the first one says that this agent keeps an interval
	defer beat.Stop()
	for {
		var next outgoing
		select {
		case <-ctx.Done():
			return nil
		case <-l.repaced():
			beat.Reset(l.paced().first())
			continue
		case <-beat.C:
			every := l.paced().interval()
			beat.Reset(every)
			next.message = &api.ConnectRequest{Message: &api.ConnectRequest_Heartbeat{Heartbeat: &api.Heartbeat{Every: durationpb.New(every)}}}
		case next = <-outbox:
		}
		if next.message == nil {
			close(next.passed)
			continue
		}
		if err := stream.Send(next.message); err != nil {
			return err
		}
	}
}

func (l *Link) receive(stream api.NodeService_ConnectClient, watch *silence.Watch) error {
	for {
		watch.Wait()
		response, err := stream.Recv()
		watch.Heard()
		if err != nil {
			return err
		}
		if err := l.current(response.GetEpoch()); err != nil {
			return err
		}
		switch m := response.GetMessage().(type) {
		case *api.ConnectResponse_Desired:
			l.receiveDesired(convert.DesiredFromProto(m.Desired, time.Now()), response.GetEpoch(), m.Desired.GetAnswersHeartbeats())
		case *api.ConnectResponse_JobEnding:
			l.answered(m.JobEnding.GetQuery(), m.JobEnding.GetKept())
		case *api.ConnectResponse_Heartbeat:
			l.answered(m.Heartbeat.GetNumber(), true)
			l.pace(m.Heartbeat)
		case *api.ConnectResponse_Snapshot:
			if err := l.options.Snapshot(m.Snapshot); err != nil {
				l.options.Log.Error("catalog snapshot not kept", "error", err)
			}
		case *api.ConnectResponse_Runs:
			if l.options.Runs != nil {
				l.options.Runs(convert.DesiredRunsFromProto(m.Runs))
			}
		default:
			l.options.Log.Warn("message of an unknown kind from the broker")
		}
	}
}

// current refuses a broker that another one has followed. A broker without epochs is of an older version.
func (l *Link) current(epoch uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if epoch != 0 && epoch < l.epoch {
		return fmt.Errorf("a message of the broker's epoch %d is refused, another broker acts since %d: %w", epoch, l.epoch, kb.ErrUnavailable)
	}
	l.epoch = max(l.epoch, epoch)
	return nil
}

// receiveDesired keeps the newest. Generations are compared within a stream only: a
// broker that lost its state begins again, and its desired state counts too.
func (l *Link) receiveDesired(desired kb.DesiredState, epoch uint64, answers bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.status.Fresh && desired.Generation < l.status.Desired.Generation {
		return
	}
	l.status.Desired, l.status.Fresh, l.status.Epoch, l.answers = &desired, true, epoch, answers
	l.notify()
}

func (l *Link) up(outbox chan outgoing) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.outbox = outbox
	l.status.Session++
	l.status.Connected, l.status.Fresh = true, false
	l.rhythm.begin()
	l.options.Log.Info("stream to the broker is up", "broker", l.options.Broker, "session", l.status.Session)
	l.notify()
}

func (l *Link) down() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.outbox = nil
	l.status.Connected, l.status.Fresh = false, false
	for query, answer := range l.asked {
		close(answer)
		delete(l.asked, query)
	}
	l.notify()
}

func (l *Link) notify() {
	select {
	case l.changed <- struct{}{}:
	default:
	}
}
