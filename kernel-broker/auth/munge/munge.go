// SPDX-License-Identifier: Apache-2.0

// Package munge asks munged, the daemon by which Slurm's own users prove who
// they are: Encode has it sign the caller's uid and a few bytes, Decode has it
// check what another caller sends.
//
// There is no well-kept Go library for it, and libmunge would need cgo. So
// this package speaks to munged's socket itself: one request and one answer on
// one connection, in a format that has had the same version for well over a
// decade and carries that version in each message. Another version is an
// error, never a guess. Cryptography, keys and clocks all stay munged's.
//
// A decode is never sent twice. munged lets a client that says "this is a
// retry" have a replayed credential, which would take its replay check away.
package munge

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/crypto/cryptobyte"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/credential"
)

// DefaultSocket is where munged listens on every distribution.
const DefaultSocket = "/run/munge/munge.socket.2"

const (
	// limit of one question; munged itself gives a client two seconds.
	limit = 5 * time.Second
	// MaxCredential is longer than any that this program makes.
	MaxCredential = 4 << 10
	// A full backlog refuses for a moment.
	connectTries = 5
	connectPause = 20 * time.Millisecond
)

// Client asks one munged. Safe for concurrent use.
type Client struct{ socket string }

// New returns a client of the munged at a socket; it does not connect.
func New(socket string) *Client { return &Client{socket: socket} }

// Encode has munged sign this process's effective uid and the payload.
func (c *Client) Encode(ctx context.Context, payload []byte, ttl time.Duration) (string, error) {
	body, err := c.ask(ctx, encodeRequest, encodeBody(payload, ttl))
	if err != nil {
		return "", err
	}
	text, err := parseEncodeReply(body)
	if err != nil {
		return "", c.wrap(err)
	}
	return text, nil
}

// Decode implements credential.Decoder: it has munged judge a credential. A credential can be decoded once: the
// next time it is ErrReplayed. With ErrExpired, ErrRewound and ErrReplayed the
// credential is returned as well, so that a record can name whose it was.
func (c *Client) Decode(ctx context.Context, text string) (credential.Decoded, error) {
	if text == "" || len(text) > MaxCredential || strings.IndexByte(text, 0) >= 0 {
		return credential.Decoded{}, &Error{Code: 8, Text: fmt.Sprintf("not asked, it is %d bytes long or has a zero in it", len(text))}
	}
	body, err := c.ask(ctx, decodeRequest, decodeBody(text))
	if err != nil {
		return credential.Decoded{}, err
	}
	decoded, err := parseDecodeReply(body)
	if err != nil {
		return decoded, c.wrap(err)
	}
	return decoded, nil
}

func (c *Client) wrap(err error) error { return fmt.Errorf("munge socket %q: %w", c.socket, err) }

// ask sends a request and returns the body of the reply to it.
func (c *Client) ask(ctx context.Context, kind byte, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	reply, err := c.exchange(ctx, kind, body)
	if err == nil || errors.Is(err, kb.ErrUnavailable) {
		return reply, err
	}
	if ctx.Err() != nil || errors.Is(err, os.ErrDeadlineExceeded) {
		err = errors.New("munged did not answer in time")
	}
	return nil, fmt.Errorf("munge socket %q: %w: %w", c.socket, kb.ErrUnavailable, err)
}

func (c *Client) exchange(ctx context.Context, kind byte, body []byte) (_ []byte, err error) {
	conn, err := c.connect(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }() // everything was read, or it does not matter
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return nil, err
		}
	}
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	if _, err := conn.Write(message(kind, body)); err != nil {
		return nil, err
	}
	header := make([]byte, headerSize)
	if _, err := io.ReadFull(conn, header); err != nil {
		return nil, err
	}
	length, err := bodyLength(header, kind+1)
	if err != nil {
		return nil, c.wrap(err)
	}
	reply := make([]byte, length)
	_, err = io.ReadFull(conn, reply)
	return reply, err
}

// connect tries a few times: nothing has been sent yet.
func (c *Client) connect(ctx context.Context) (net.Conn, error) {
	for try := 1; ; try++ {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", c.socket)
		if err == nil || try == connectTries || !errors.Is(err, syscall.EAGAIN) {
			return conn, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(time.Duration(try) * connectPause):
		}
	}
}

// Why a credential proves nothing. Each is an *Error with munged's text,
// and each is kernelbroker.ErrUnauthenticated too.
var (
	// ErrForged: made with another key, changed, or no credential at all.
	ErrForged = errors.New("credential is not genuine")
	// ErrExpired: genuine, and older than its time to live.
	ErrExpired = errors.New("credential has expired")
	// ErrRewound: genuine, and from further ahead than clocks may differ.
	ErrRewound = errors.New("credential is from the future")
	// ErrReplayed: genuine, and decoded on this host before.
	ErrReplayed = errors.New("credential was used before")
	// ErrNotForUs: genuine, and made for another user to decode.
	ErrNotForUs = errors.New("credential is for another user to decode")

	// ErrProtocol: what answers at the socket does not speak as munged does.
	// It is kernelbroker.ErrUnavailable as well.
	ErrProtocol = fmt.Errorf("munged's answer cannot be understood: %w", kb.ErrUnavailable)
)

// munged's error codes.
var kinds = map[byte]error{
	8: ErrForged, 9: ErrForged, 10: ErrForged, 11: ErrForged, 12: ErrForged, 13: ErrForged, 14: ErrForged,
	15: ErrExpired, 16: ErrRewound, 17: ErrReplayed, 18: ErrNotForUs,
}

// Error is a refusal by munged.
type Error struct {
	Code byte
	Text string
}

func (e *Error) Error() string {
	if kind := kinds[e.Code]; kind != nil {
		return fmt.Sprintf("%v (munged: %s)", kind, e.Text)
	}
	return fmt.Sprintf("munged: error %d: %s", e.Code, e.Text)
}

// Unwrap tells a bad credential from a munged that is not well.
func (e *Error) Unwrap() []error {
	if kind := kinds[e.Code]; kind != nil {
		return []error{kind, kb.ErrUnauthenticated}
	}
	return []error{kb.ErrUnavailable}
}

// What stands at the begin of each message: magic, version, type, retry and
// the length of the body. Numbers are big endian.
const (
	headerSize = 11
	magic      = 0x00606D4B
	version    = 4
)

// Types of messages.
const (
	encodeRequest byte = 2 + iota
	encodeReply
	decodeRequest
	decodeReply
)

// maxBody of a reply. What this program encodes is a few hundred bytes long,
// and somebody else's credential may hold up to a megabyte that nobody wants.
const maxBody = 64 << 10

// Values that leave the choice to munged.
const (
	byDefault = 1          // of cipher, MAC and compression
	anybody   = 0xFFFFFFFF // as the uid and gid that may decode
)

func message(kind byte, body []byte) []byte {
	m := binary.BigEndian.AppendUint32(make([]byte, 0, headerSize+len(body)), magic)
	m = append(m, version, kind, 0)
	m = binary.BigEndian.AppendUint32(m, uint32(len(body)))
	return append(m, body...)
}

func encodeBody(payload []byte, ttl time.Duration) []byte {
	b := []byte{byDefault, byDefault, byDefault, 0} // and no realm
	b = binary.BigEndian.AppendUint32(b, uint32(ttl/time.Second))
	b = binary.BigEndian.AppendUint32(b, anybody)
	b = binary.BigEndian.AppendUint32(b, anybody)
	b = binary.BigEndian.AppendUint32(b, uint32(len(payload)))
	return append(b, payload...)
}

func decodeBody(text string) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(text)+1))
	return append(append(b, text...), 0)
}

// bodyLength reads a reply's header.
func bodyLength(header []byte, kind byte) (int, error) {
	var h struct {
		Magic                uint32
		Version, Kind, Retry uint8
		Length               uint32
	}
	switch _, err := binary.Decode(header, binary.BigEndian, &h); {
	case err != nil:
		return 0, protocol("its header is %d bytes long", len(header))
	case h.Magic != magic:
		return 0, protocol("it is not munged's, it begins with %#08x", h.Magic)
	case h.Version != version:
		return 0, protocol("it has version %d, this program knows %d", h.Version, version)
	case h.Kind != kind:
		return 0, protocol("it is of type %d instead of %d", h.Kind, kind)
	case h.Length > maxBody:
		return 0, protocol("it is %d bytes long, at most %d are taken", h.Length, maxBody)
	}
	return int(h.Length), nil
}

func parseEncodeReply(body []byte) (string, error) {
	s := cryptobyte.String(body)
	var code uint8
	var text cryptobyte.String
	var size uint32
	var data []byte
	whole := s.ReadUint8(&code) && s.ReadUint8LengthPrefixed(&text) && s.ReadUint32(&size) && s.ReadBytes(&data, int(size))
	if err := end(s, whole); err != nil {
		return "", err
	}
	if code != 0 {
		return "", &Error{Code: code, Text: words(text)}
	}
	if words(data) == "" {
		return "", protocol("there is no credential in it")
	}
	return words(data), nil
}

// parseDecodeReply returns what munged says. Of a credential that is genuine
// but comes too late, too early or again, munged tells whose it is: that is
// returned beside the error, for the record and for nothing else.
func parseDecodeReply(body []byte) (credential.Decoded, error) {
	s := cryptobyte.String(body)
	var c credential.Decoded
	var code uint8
	var text, realm, host cryptobyte.String
	var encoded, decoded, size uint32
	whole := s.ReadUint8(&code) && s.ReadUint8LengthPrefixed(&text) &&
		s.Skip(3) && s.ReadUint8LengthPrefixed(&realm) && s.Skip(4) && // cipher, MAC, compression; time to live
		s.ReadUint8LengthPrefixed(&host) && s.ReadUint32(&encoded) && s.ReadUint32(&decoded) &&
		s.ReadUint32(&c.UID) && s.ReadUint32(&c.GID) && s.Skip(8) && // who may decode
		s.ReadUint32(&size) && s.ReadBytes(&c.Payload, int(size))
	if err := end(s, whole); err != nil {
		return credential.Decoded{}, err
	}
	c.Encoded, c.Decoded = time.Unix(int64(encoded), 0).UTC(), time.Unix(int64(decoded), 0).UTC()
	c.Host, _ = netip.AddrFromSlice(host)
	if code != 0 {
		return c, &Error{Code: code, Text: words(text)}
	}
	if c.UID == anybody || c.GID == anybody {
		return credential.Decoded{}, protocol("it names nobody")
	}
	return c, nil
}

// words is a string; munged counts the byte 0 that ends it.
func words(b []byte) string { return string(bytes.TrimSuffix(b, []byte{0})) }

func end(left cryptobyte.String, whole bool) error {
	switch {
	case !whole:
		return protocol("it is cut off")
	case !left.Empty():
		return protocol("%d bytes too many are in it", len(left))
	}
	return nil
}

func protocol(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrProtocol, fmt.Sprintf(format, args...))
}
