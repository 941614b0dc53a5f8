// SPDX-License-Identifier: Apache-2.0

package munge

import (
	"encoding/binary"
	"errors"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// reply is what munged answers to a decode.
func reply(code byte, text string, uid uint32, payload string) []byte {
	b := append([]byte{code, byte(len(text) + 1)}, text...)
	b = append(b, 0, 4, 5, 0, 0)
	b = binary.BigEndian.AppendUint32(b, 60)
	b = append(b, 4, 10, 0, 0, 7)
	for _, n := range []uint32{1000, 1001, uid, uid + 1, anybody, anybody, uint32(len(payload))} {
		b = binary.BigEndian.AppendUint32(b, n)
	}
	return append(b, payload...)
}

func TestParseDecodeReply(t *testing.T) {
	c, err := parseDecodeReply(reply(0, "", 20001, "hello"))
	if err != nil || c.UID != 20001 || c.GID != 20002 || string(c.Payload) != "hello" || c.Host.String() != "10.0.0.7" ||
		c.Decoded.Sub(c.Encoded) != time.Second {
		t.Errorf("%+v, %v", c, err)
	}
	for code, want := range map[byte][]error{
		8: {ErrForged, kb.ErrUnauthenticated}, 14: {ErrForged, kb.ErrUnauthenticated}, 15: {ErrExpired, kb.ErrUnauthenticated}, 16: {ErrRewound, kb.ErrUnauthenticated},
		17: {ErrReplayed, kb.ErrUnauthenticated}, 18: {ErrNotForUs, kb.ErrUnauthenticated}, 1: {kb.ErrUnavailable}, 5: {kb.ErrUnavailable}, 99: {kb.ErrUnavailable},
	} {
		c, err := parseDecodeReply(reply(code, "why", 20001, ""))
		for _, w := range want {
			if !errors.Is(err, w) {
				t.Errorf("code %d: %v is not %v", code, err, w)
			}
		}
		if code == 16 && c.UID != 20001 {
			t.Errorf("rewound: %+v", c)
		}
	}
	whole := reply(0, "", 20001, "hello")
	for n := range whole {
		if c, err := parseDecodeReply(whole[:n]); !errors.Is(err, ErrProtocol) {
			t.Errorf("cut at %d: %+v, %v", n, c, err)
		}
	}
	if _, err := parseDecodeReply(append(whole, 0)); !errors.Is(err, ErrProtocol) {
		t.Errorf("with more behind it: %v", err)
	}
	if _, err := parseDecodeReply(reply(0, "", anybody, "")); !errors.Is(err, ErrProtocol) {
		t.Errorf("of nobody: %v", err)
	}
}

// Whatever answers at the socket, nobody is proven but by a whole reply.
func FuzzReply(f *testing.F) {
	f.Add(reply(0, "", 20001, "hello"))
	f.Add(reply(17, "Replayed credential", 20001, "hello"))
	f.Add([]byte{0, 0, 0, 0, 0, 8, 'M', 'U', 'N', 'G', 'E', ':', ':', 0})
	f.Add([]byte{0, 0x60, 0x6d, 0x4b, 4, 5, 0, 0, 0, 0, 9})
	f.Fuzz(func(t *testing.T, data []byte) {
		if n, err := bodyLength(data, decodeReply); err == nil && (n < 0 || n > maxBody) {
			t.Errorf("length %d", n)
		}
		if credential, err := parseEncodeReply(data); (err == nil) == (credential == "") {
			t.Errorf("parseEncodeReply = %q, %v", credential, err)
		}
		c, err := parseDecodeReply(data)
		if err != nil {
			return
		}
		if c.UID == anybody || data[0] != 0 || len(c.Payload) > len(data) {
			t.Errorf("parseDecodeReply(%x) = %+v", data, c)
		}
	})
}
