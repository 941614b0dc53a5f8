// SPDX-License-Identifier: Apache-2.0

package history

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
)

const (
	prefix = "events/"
	// mostInRecord are the events of one record: with texts at their longest it has some 2 MB before it is compressed.
	mostInRecord = 1000
	// maxText of one part of an event: users, nodes and site's programs write some of them.
	maxText = 400
	// mostUnpacked bounds what a damaged record may become.
	mostUnpacked = 16 << 20
)

func keyOf(first uint64) string { return fmt.Sprintf("%s%012d", prefix, first) }

func firstOf(key string) (uint64, error) {
	n, err := strconv.ParseUint(strings.TrimPrefix(key, prefix), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("record %q: %w", key, err)
	}
	return n, nil
}

// header is a record's first line.
type header struct {
	Count uint64    `json:"count"`
	At    time.Time `json:"at"`
}

// codec packs the events of records. Its parts are safe for concurrent use.
type codec struct {
	packer   *zstd.Encoder
	unpacker *zstd.Decoder
}

func newCodec() (codec, error) {
	packer, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return codec{}, fmt.Errorf("events: %w", err)
	}
	unpacker, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(mostUnpacked))
	if err != nil {
		return codec{}, fmt.Errorf("events: %w", err)
	}
	return codec{packer, unpacker}, nil
}

func (c codec) encode(events []kb.ClusterEvent, at time.Time) ([]byte, error) {
	head, err := json.Marshal(header{uint64(len(events)), at})
	if err != nil {
		return nil, fmt.Errorf("events: %w", err)
	}
	text, err := json.Marshal(events)
	if err != nil {
		return nil, fmt.Errorf("events: %w", err)
	}
	return c.packer.EncodeAll(text, append(head, '\n')), nil
}

// index reads what the index needs of a record.
func (c codec) index(rec store.Record) (batch, error) {
	first, err := firstOf(rec.Key)
	if err != nil {
		return batch{}, err
	}
	line, _, _ := bytes.Cut(rec.Value, []byte("\n"))
	var h header
	if err := json.Unmarshal(line, &h); err != nil {
		return batch{}, fmt.Errorf("record %q: %w", rec.Key, err)
	}
	if h.Count == 0 || h.Count > mostInRecord {
		return batch{}, fmt.Errorf("record %q has %d events: %w", rec.Key, h.Count, kb.ErrInvalid)
	}
	return batch{first: first, count: h.Count, at: h.At, bytes: int64(len(rec.Key) + len(rec.Value))}, nil
}

func (c codec) decode(rec store.Record) ([]kb.ClusterEvent, error) {
	b, err := c.index(rec)
	if err != nil {
		return nil, err
	}
	_, packed, _ := bytes.Cut(rec.Value, []byte("\n"))
	text, err := c.unpacker.DecodeAll(packed, nil)
	if err != nil {
		return nil, fmt.Errorf("record %q: %w", rec.Key, err)
	}
	var events []kb.ClusterEvent
	if err := json.Unmarshal(text, &events); err != nil {
		return nil, fmt.Errorf("record %q: %w", rec.Key, err)
	}
	if uint64(len(events)) != b.count {
		return nil, fmt.Errorf("record %q has %d events, its first line says %d: %w", rec.Key, len(events), b.count, kb.ErrInvalid)
	}
	for i := range events {
		events[i].Number = b.first + uint64(i)
	}
	return events, nil
}

// clipped has no text that is longer than an event's may be.
func clipped(e kb.ClusterEvent) kb.ClusterEvent {
	for _, text := range []*string{&e.From, &e.To, &e.Who, &e.Why} {
		if len(*text) > maxText {
			*text = strings.ToValidUTF8((*text)[:maxText], "") + "..."
		}
	}
	return e
}
