// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/proto"
)

// rawClient speaks HTTP/2 as no library does that means well.
type rawClient struct {
	net.Conn
	t      *testing.T
	mu     sync.Mutex // of what is written
	framer *http2.Framer
	answer chan http2.FrameHeader // what came, but for pings and settings
	gone   chan error             // how the connection ended
}

// rawTo dials and says the connection's first words; window is how many bytes
// of each answer it takes.
func rawTo(t *testing.T, network, address string, window uint32) *rawClient {
	t.Helper()
	conn, err := net.Dial(network, address)
	if err != nil {
		t.Fatal(err)
	}
	return rawOn(t, conn, window)
}

func rawOn(t *testing.T, conn net.Conn, window uint32) *rawClient {
	t.Helper()
	c := &rawClient{Conn: conn, t: t, framer: http2.NewFramer(conn, conn), answer: make(chan http2.FrameHeader, 1000), gone: make(chan error, 1)}
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	if err := c.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window}); err != nil {
		t.Fatal(err)
	}
	return c
}

// write writes a frame.
func (c *rawClient) write(frame func(*http2.Framer) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return frame(c.framer)
}

// listen reads, and answers pings, so that keepalive finds nothing wrong.
func (c *rawClient) listen() { c.read(true) }

func (c *rawClient) read(answers bool) {
	go func() {
		for {
			frame, err := c.framer.ReadFrame()
			if err != nil {
				c.gone <- err
				return
			}
			switch f := frame.(type) {
			case *http2.PingFrame:
				if !f.IsAck() && answers {
					err = c.write(func(w *http2.Framer) error { return w.WritePing(true, f.Data) })
				}
			case *http2.SettingsFrame:
				if !f.IsAck() && answers {
					err = c.write(func(w *http2.Framer) error { return w.WriteSettingsAck() })
				}
			default:
				c.answer <- frame.Header()
			}
			if err != nil {
				c.gone <- err
				return
			}
		}
	}()
}

// ended waits for the server to hang up.
func (c *rawClient) ended(within time.Duration) error {
	select {
	case err := <-c.gone:
		return err
	case <-time.After(within):
		return errors.New("still open")
	}
}

// closed reports whether the server hung up, by whatever words.
func closed(err error) bool {
	var timeout net.Error
	return err != nil && err.Error() != "still open" && (!errors.As(err, &timeout) || !timeout.Timeout())
}

func headersOf(path string, more ...hpack.HeaderField) []byte {
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	for _, f := range append([]hpack.HeaderField{{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"}, {Name: ":path", Value: path},
		{Name: ":authority", Value: "broker"}, {Name: "content-type", Value: "application/grpc"}, {Name: "te", Value: "trailers"}}, more...) {
		_ = e.WriteField(f) // to memory
	}
	return block.Bytes()
}

func (c *rawClient) call(stream uint32, path string) error {
	return c.write(func(w *http2.Framer) error {
		return w.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: headersOf(path), EndHeaders: true})
	})
}

// framed is a message as gRPC sends it.
func framed(t *testing.T, message proto.Message) []byte {
	t.Helper()
	body, err := proto.Marshal(message)
	if err != nil {
		t.Fatal(err)
	}
	return append([]byte{0, byte(len(body) >> 24), byte(len(body) >> 16), byte(len(body) >> 8), byte(len(body))}, body...)
}

// ask makes a whole call.
func (c *rawClient) ask(stream uint32, path string, message proto.Message) error {
	if err := c.call(stream, path); err != nil {
		return err
	}
	return c.data(stream, true, framed(c.t, message))
}

func (c *rawClient) data(stream uint32, end bool, bytes []byte) error {
	return c.write(func(w *http2.Framer) error { return w.WriteData(stream, end, bytes) })
}
