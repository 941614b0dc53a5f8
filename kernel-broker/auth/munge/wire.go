// SPDX-License-Identifier: Apache-2.0

package munge

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/credential"
)

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
	r := reader{left: header}
	m, v, k, _ := r.u32(), r.u8(), r.u8(), r.u8()
	length := r.u32()
	switch {
	case r.short:
		return 0, protocol("its header is %d bytes long", len(header))
	case m != magic:
		return 0, protocol("it is not munged's, it begins with %#08x", m)
	case v != version:
		return 0, protocol("it has version %d, this program knows %d", v, version)
	case k != kind:
		return 0, protocol("it is of type %d instead of %d", k, kind)
	case length > maxBody:
		return 0, protocol("it is %d bytes long, at most %d are taken", length, maxBody)
	}
	return int(length), nil
}

// parseEncodeReply returns the credential.
func parseEncodeReply(body []byte) (string, error) {
	r := reader{left: body}
	code := r.u8()
	text := r.text(int(r.u8()))
	data := r.text(int(r.u32()))
	if err := r.end(); err != nil {
		return "", err
	}
	if code != 0 {
		return "", &Error{Code: code, Text: text}
	}
	if data == "" {
		return "", protocol("there is no credential in it")
	}
	return data, nil
}

// parseDecodeReply returns what munged says. Of a credential that is genuine
// but comes too late, too early or again, munged tells whose it is: that is
// returned beside the error, for the record and for nothing else.
func parseDecodeReply(body []byte) (credential.Decoded, error) {
	r := reader{left: body}
	code := r.u8()
	text := r.text(int(r.u8()))
	r.bytes(3)           // cipher, MAC, compression
	r.bytes(int(r.u8())) // realm
	r.bytes(4)           // time to live
	var c credential.Decoded
	host := r.bytes(int(r.u8()))
	c.Encoded, c.Decoded = seconds(r.u32()), seconds(r.u32())
	c.UID, c.GID = r.u32(), r.u32()
	r.bytes(8) // who may decode
	c.Payload = r.bytes(int(r.u32()))
	if err := r.end(); err != nil {
		return credential.Decoded{}, err
	}
	c.Host, _ = netip.AddrFromSlice(host)
	if code != 0 {
		return c, &Error{Code: code, Text: text}
	}
	if c.UID == anybody || c.GID == anybody {
		return credential.Decoded{}, protocol("it names nobody")
	}
	return c, nil
}

func seconds(n uint32) time.Time { return time.Unix(int64(n), 0).UTC() }

// reader takes a message apart; once it is short it yields zeros.
type reader struct {
	left  []byte
	short bool
}

func (r *reader) bytes(n int) []byte {
	if n < 0 || n > len(r.left) {
		r.left, r.short = nil, true
		return nil
	}
	part := r.left[:n:n]
	r.left = r.left[n:]
	return part
}

func (r *reader) u8() byte {
	if b := r.bytes(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) u32() uint32 {
	if b := r.bytes(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

// text reads a string; munged counts the byte 0 that ends it.
func (r *reader) text(n int) string {
	b := r.bytes(n)
	if len(b) > 0 && b[len(b)-1] == 0 {
		b = b[:len(b)-1]
	}
	return string(b)
}

func (r *reader) end() error {
	switch {
	case r.short:
		return protocol("it is cut off")
	case len(r.left) > 0:
		return protocol("%d bytes too many are in it", len(r.left))
	}
	return nil
}

func protocol(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrProtocol, fmt.Sprintf(format, args...))
}
