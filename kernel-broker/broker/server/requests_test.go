// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"golang.org/x/net/http2"
)

// wire writes what a client or a broker sends.
type wire struct {
	bytes.Buffer
	*http2.Framer
}

func newWire(client bool) *wire {
	w := &wire{}
	if client {
		w.WriteString(http2.ClientPreface)
	}
	w.Framer = http2.NewFramer(&w.Buffer, nil)
	return w
}

func (w *wire) headers(stream uint32, end bool) {
	_ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: []byte("headers"), EndHeaders: true, EndStream: end}) // to memory
}

func (w *wire) data(stream uint32, end bool, p []byte) { _ = w.WriteData(stream, end, p) }

// take has the bytes received in pieces of at most so many bytes.
func (w *wire) take(r *requests, most int, stranger bool) (change int64, err error) {
	for p := w.Bytes(); len(p) > 0 && err == nil; {
		n := min(len(p), 1+rand.IntN(most))
		var more int64
		more, err = r.received(p[:n], stranger)
		change, p = change+more, p[n:]
	}
	w.Reset()
	return change, err
}

func message(bytes int) []byte {
	return append([]byte{0, byte(bytes >> 24), byte(bytes >> 16), byte(bytes >> 8), byte(bytes)}, make([]byte, bytes)...)
}

// What is under way counts, and no more once it is complete, in whatever pieces it comes.
func TestWhatRequestsTake(t *testing.T) {
	half := message(10_000)[:5000]
	for name, c := range map[string]struct {
		say             func(w *wire)
		known, stranger int64
	}{
		"headers":            {func(w *wire) { w.headers(1, false) }, requestBytes, requestBytes},
		"no body":            {func(w *wire) { w.headers(1, true) }, 0, requestBytes},
		"half":               {func(w *wire) { w.headers(1, false); w.data(1, false, half) }, requestBytes + frameBytes + 5000, requestBytes + frameBytes + 5000},
		"byte by byte":       {func(w *wire) { w.headers(1, false); each(w, half) }, requestBytes + 5000*(frameBytes+1), requestBytes + 5000*(frameBytes+1)},
		"whole":              {func(w *wire) { w.headers(1, false); w.data(1, true, message(100)) }, 0, requestBytes + frameBytes + 105},
		"whole, no end":      {func(w *wire) { w.headers(1, false); w.data(1, false, message(100)) }, requestBytes + frameBytes + 105, requestBytes + frameBytes + 105},
		"whole, then an end": {func(w *wire) { w.headers(1, false); w.data(1, false, message(100)); w.data(1, true, nil) }, 0, requestBytes + frameBytes + 105},
		"two":                {func(w *wire) { w.headers(1, false); w.data(1, false, message(100)); w.data(1, false, message(7)) }, 0, requestBytes + 2*frameBytes + 105 + 12},
		"two in a frame":     {func(w *wire) { w.headers(1, false); w.data(1, false, append(message(100), message(7)...)) }, 0, requestBytes + frameBytes + 105 + 12},
		"two and a half": {func(w *wire) {
			w.headers(1, false)
			w.data(1, false, append(message(100), append(message(7), half...)...))
		}, frameBytes + 5000, requestBytes + frameBytes + 105 + 12 + 5000},
		"empty ones": {func(w *wire) { w.headers(1, false); w.data(1, false, message(0)); w.data(1, false, message(0)) }, 0, requestBytes + 2*(frameBytes+5)},
		"taken back": {func(w *wire) {
			w.headers(1, false)
			w.data(1, false, half)
			_ = w.WriteRSTStream(1, http2.ErrCodeCancel)
		}, 0, 0},
		"of no stream":    {func(w *wire) { w.data(3, false, half) }, 0, 0},
		"a second stream": {func(w *wire) { w.headers(1, true); w.headers(3, false) }, requestBytes, 2 * requestBytes},
		"other frames":    {func(w *wire) { _ = w.WriteSettings(); _ = w.WritePing(false, [8]byte{}); w.headers(1, false) }, requestBytes, requestBytes},
	} {
		for _, most := range []int{1, 10, 1 << 20} {
			for stranger, want := range map[bool]int64{false: c.known, true: c.stranger} {
				r, w, answers := newRequests(), newWire(true), newWire(false)
				c.say(w)
				if got, err := w.take(r, most, stranger); err != nil || got != want {
					t.Errorf("%s, in pieces of %d, stranger %v: %d and %v, want %d", name, most, stranger, got, err, want)
				}
				answers.headers(1, false)
				answers.data(1, false, half)
				answers.headers(1, true)
				_ = answers.WriteRSTStream(3, http2.ErrCodeRefusedStream)
				if left := r.sent(answers.Bytes()); left != -want {
					t.Errorf("%s, stranger %v: at the end %d are free of %d", name, stranger, -left, want)
				}
			}
		}
	}
}

func each(w *wire, p []byte) {
	for i := range p {
		w.data(1, false, p[i:i+1])
	}
}

func TestWhatIsNotTaken(t *testing.T) {
	for name, c := range map[string]struct {
		say             func(w *wire)
		known, stranger error
	}{
		"large": {func(w *wire) {
			for range 5 {
				w.data(1, false, message(window / 4)[:window/4])
			}
		}, nil, errStrangersBody},
		"many small ones": {func(w *wire) {
			for range window/105 + 1 {
				w.data(1, false, message(100))
			}
		}, nil, errStrangersBody},
		"compressed": {func(w *wire) { w.data(1, false, []byte{1, 0, 0, 0, 9}) }, nil, errCompressed},
		"padded":     {func(w *wire) { _ = w.WriteDataPadded(1, false, message(1), make([]byte, 9)) }, errPadded, errPadded},
	} {
		for stranger, want := range map[bool]error{false: c.known, true: c.stranger} {
			w := newWire(true)
			w.headers(1, false)
			c.say(w)
			if _, err := w.take(newRequests(), 1<<10, stranger); !errors.Is(err, want) {
				t.Errorf("%s, stranger %v: %v, want %v", name, stranger, err, want)
			}
		}
	}
}

// A stranger who turns out to be known has only what is under way.
func TestStrangerIsKnown(t *testing.T) {
	r, w := newRequests(), newWire(true)
	w.headers(1, false)
	w.data(1, true, message(100))
	w.headers(3, false)
	if got, err := w.take(r, 10, true); err != nil || got != 2*requestBytes+frameBytes+105 {
		t.Fatal(got, err)
	}
	if got := r.known(); got != -(requestBytes + frameBytes + 105) {
		t.Errorf("%d are free", -got)
	}
}
