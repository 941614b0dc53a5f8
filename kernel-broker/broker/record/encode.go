// SPDX-License-Identifier: Apache-2.0

package record

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"sync"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
)

const (
	// PackFrom is the size from which a record is compressed: a block of a disk. That of a job on
	// thousands of nodes says the same of each of them: 4,000 nodes are 2.9 MB
	// of JSON, which no store takes at once, and 360 kB compressed.
	PackFrom = 4 << 10
	// mostUnpacked bounds what a damaged record may become.
	mostUnpacked = 64 << 20
)

// packed is how a compressed record begins; no JSON does.
var packed = []byte{0x1f, 0x8b}

// packers are used again: each has tables of a megabyte.
var packers = sync.Pool{New: func() any {
	z, err := gzip.NewWriterLevel(nil, gzip.BestSpeed)
	if err != nil {
		panic(err) // it is a level
	}
	return z
}}

// Encode makes a record's value: JSON, compressed where that is long.
func Encode(key string, value any) ([]byte, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("record %q: %w", key, err)
	}
	if len(text) < PackFrom {
		return text, nil
	}
	var out bytes.Buffer
	z := packers.Get().(*gzip.Writer)
	defer packers.Put(z)
	z.Reset(&out)
	if _, err = z.Write(text); err == nil {
		err = z.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("record %q: %w", key, err)
	}
	return out.Bytes(), nil
}

// length is how long a record's JSON is, as far as the record says.
func length(rec store.Record) int {
	// gzip has the length of what it holds in its last four bytes.
	if at := len(rec.Value) - 4; at >= 0 && bytes.HasPrefix(rec.Value, packed) {
		return int(binary.LittleEndian.Uint32(rec.Value[at:]))
	}
	return len(rec.Value)
}

// Unpack returns a record's JSON.
func Unpack(rec store.Record) ([]byte, error) {
	if !bytes.HasPrefix(rec.Value, packed) {
		return rec.Value, nil
	}
	z, err := gzip.NewReader(bytes.NewReader(rec.Value))
	if err != nil {
		return nil, fmt.Errorf("record %q: %w", rec.Key, err)
	}
	text, err := io.ReadAll(io.LimitReader(z, mostUnpacked+1))
	if err == nil && len(text) > mostUnpacked {
		err = fmt.Errorf("more than %d MiB of text: %w", mostUnpacked>>20, kb.ErrInvalid)
	}
	if err != nil {
		return nil, fmt.Errorf("record %q: %w", rec.Key, err)
	}
	return text, nil
}

// Decode reads a record that has to be under its own key: a change of one that
// is not would go to another record.
func Decode(key string, text []byte, into any, own func() string) error {
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("record %q: %w", key, err)
	}
	if belongs := own(); belongs != key {
		return fmt.Errorf("record %q holds what belongs under %q: %w", key, belongs, kb.ErrInvalid)
	}
	return nil
}
