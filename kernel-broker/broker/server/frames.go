// SPDX-License-Identifier: Apache-2.0

package server

import (
	"encoding/binary"

	"golang.org/x/net/http2"
)

const frameHeader = 9 // bytes

// frameScanner finds HTTP/2's frames in one direction of a connection, in whatever
// pieces its bytes come.
type frameScanner struct {
	skip  int // bytes before the first frame
	head  [frameHeader]byte
	got   int // bytes of head
	frame http2.FrameHeader
	left  int // bytes of the frame's payload
}

// scan calls visit for the begin of each frame, and for each piece of its payload.
func (s *frameScanner) scan(p []byte, visit func(piece framePiece)) {
	n := min(s.skip, len(p))
	s.skip -= n
	for p = p[n:]; len(p) > 0; {
		if s.left == 0 {
			n := copy(s.head[s.got:], p)
			p = p[n:]
			if s.got += n; s.got < frameHeader {
				return
			}
			s.got = 0
			s.left = int(s.head[0])<<16 | int(s.head[1])<<8 | int(s.head[2])
			s.frame = http2.FrameHeader{Type: http2.FrameType(s.head[3]), Flags: http2.Flags(s.head[4]), Length: uint32(s.left),
				StreamID: binary.BigEndian.Uint32(s.head[5:]) &^ (1 << 31)}
			visit(framePiece{FrameHeader: s.frame, begins: true, ends: s.left == 0})
			continue
		}
		n := min(s.left, len(p))
		s.left -= n
		visit(framePiece{FrameHeader: s.frame, payload: p[:n], left: s.left, ends: s.left == 0})
		p = p[n:]
	}
}

// framePiece is what came of a frame: its header, or some of its payload.
type framePiece struct {
	http2.FrameHeader
	payload []byte
	// left is how much of the payload is to come after this.
	left         int
	begins, ends bool
}

// endsStream reports whether its sender sends no more on the stream.
func (p framePiece) endsStream() bool {
	return p.ends && p.Flags.Has(http2.FlagDataEndStream) && (p.Type == http2.FrameData || p.Type == http2.FrameHeaders)
}
