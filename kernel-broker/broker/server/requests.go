// SPDX-License-Identifier: Apache-2.0

package server

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/net/http2"
)

const (
	// window of a stream: what gRPC takes of a request before anybody reads it. It
	// is the smallest that gRPC knows, and all that a stranger may send.
	window = 64 << 10
	// requestBytes is what a request takes beside its body: up to maxHeaders, a
	// goroutine and gRPC's own records.
	requestBytes = 32 << 10
	// frameBytes is what gRPC keeps of a frame beside its payload, which may be one
	// byte.
	frameBytes = 128
)

var (
	errStrangersBody = fmt.Errorf("a request has more than %d bytes, and nothing proves who sends it", window)
	errCompressed    = errors.New("a message is compressed, and nothing proves who sends it")
	errPadded        = errors.New("data are padded, which no client does")
)

// requests are those of one connection that are not complete, by what they take of
// the broker's memory. gRPC takes in a message whole before anybody can refuse it,
// so they are counted below it.
//
// Of a stranger, who has not proven who it is, a request counts until it is
// answered. Of others it counts until it is complete: then the calls of a caller
// are limited. A stream of messages counts for the one that is under way.
type requests struct {
	mu      sync.Mutex
	in, out frameScanner
	last    uint32 // the latest stream
	open    map[uint32]*request
	// headers: those of a request have begun, and are not complete.
	headers bool
}

func newRequests() *requests {
	return &requests{in: frameScanner{skip: len(http2.ClientPreface)}, open: map[uint32]*request{}}
}

// request is one that is under way.
type request struct {
	held     int64
	body     int64
	prefix   [5]byte // of a message: compressed or not, and its length
	got      int     // bytes of prefix
	need     uint32  // bytes of the message to come
	messages int     // that are complete
	complete bool    // its client sends no more
}

// received notes what the client sent. It returns by how much that changes what the
// requests take, and an error for what is not taken.
func (r *requests) received(p []byte, stranger bool) (change int64, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.in.scan(p, func(f framePiece) {
		if f.Type == http2.FrameHeaders || f.Type == http2.FrameContinuation {
			r.headers = !f.ends || !f.Flags.Has(http2.FlagHeadersEndHeaders)
		}
		at := r.open[f.StreamID]
		switch {
		case f.Type == http2.FrameHeaders && f.begins && f.StreamID > r.last:
			at = &request{held: requestBytes}
			r.last, r.open[f.StreamID] = f.StreamID, at
			change += requestBytes
		case at == nil:
			return
		case f.Type == http2.FrameRSTStream:
			change += r.drop(f.StreamID)
			return
		case f.Type == http2.FrameData:
			before := at.held
			refused := at.take(f, stranger)
			change += at.held - before
			if err == nil {
				err = refused
			}
		}
		if at.complete = at.complete || f.endsStream(); at.complete && !stranger {
			change += r.drop(f.StreamID)
		}
	})
	return change, err
}

// inHeaders reports whether headers are under way.
func (r *requests) inHeaders() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.headers
}

// known is called when it is proven who sends. What is complete counts no more.
func (r *requests) known() (change int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for stream, at := range r.open {
		if at.complete {
			change += r.drop(stream)
		}
	}
	return change
}

// sent notes what the broker sent: a stream that it ends takes nothing more.
func (r *requests) sent(p []byte) (change int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.out.scan(p, func(f framePiece) {
		if f.Type == http2.FrameRSTStream || f.endsStream() {
			change += r.drop(f.StreamID)
		}
	})
	return change
}

func (r *requests) drop(stream uint32) (change int64) {
	if at := r.open[stream]; at != nil {
		delete(r.open, stream)
		return -at.held
	}
	return 0
}

// take notes a piece of a body.
func (at *request) take(f framePiece, stranger bool) error {
	if f.Flags.Has(http2.FlagDataPadded) {
		return errPadded
	}
	if f.begins {
		if f.Length > 0 {
			at.held += int64(f.Length) + frameBytes
		}
		if at.body += int64(f.Length); stranger && at.body > window {
			return errStrangersBody
		}
	}
	for p := f.payload; len(p) > 0; {
		if at.got < len(at.prefix) {
			if at.got == 0 && at.messages > 0 && !stranger { // the one before was taken
				at.held = int64(len(p)+f.left) + frameBytes
			}
			n := copy(at.prefix[at.got:], p)
			p = p[n:]
			if at.got += n; at.got < len(at.prefix) {
				return nil
			}
			if at.prefix[0] != 0 && stranger {
				return errCompressed
			}
			at.need = binary.BigEndian.Uint32(at.prefix[1:])
		} else {
			n := min(len(p), int(at.need))
			at.need -= uint32(n)
			p = p[n:]
		}
		if at.need == 0 {
			at.got = 0
			at.messages++
			// A call with one request is read on up to the stream's end.
			if at.messages > 1 && !stranger {
				at.held = int64(len(p) + f.left)
			}
		}
	}
	return nil
}
