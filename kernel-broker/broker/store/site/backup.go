// SPDX-License-Identifier: Apache-2.0

package site

import (
	"bufio"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"iter"
	"os"
	"time"
	"unicode/utf8"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/safeopen"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/strictjson"
)

// A backup is lines of JSON, packed by gzip: a header, the records in the order of their keys, and their number with the
// SHA-256 of all lines before.
const (
	backupVersion = 1
	// maxLine is more than a record of the largest commit takes.
	maxLine = 2*store.MaxCommitBytes + 4096
)

// Header begins a backup.
type Header struct {
	Version int    `json:"kernel_broker_backup"`
	Cluster string `json:"cluster"`
	// ID is the site's; empty for a store of a version before sites had names.
	ID    string    `json:"id,omitempty"`
	Taken time.Time `json:"taken"`
	// Revision of the store at which all records were read.
	Revision int64 `json:"revision"`
	// Program that wrote it.
	Program string `json:"program"`
}

type backupRecord struct {
	Key   string `json:"key"`
	Value []byte `json:"value"`
}

type backupEnd struct {
	Records int    `json:"records"`
	SHA256  string `json:"sha256"`
}

// Summary is what a backup has.
type Summary struct {
	Header
	Records int
	SHA256  string
}

// Write writes a backup.
func Write(ctx context.Context, to io.Writer, h Header, from Source, progress Progress) (Summary, error) {
	packed := gzip.NewWriter(to)
	out := bufio.NewWriterSize(packed, 1<<16)
	sum := sha256.New()
	line := func(value any) error {
		text, err := json.Marshal(value)
		if err != nil {
			return err
		}
		text = append(text, '\n')
		_, _ = sum.Write(text) // never fails
		_, err = out.Write(text)
		return err
	}
	h.Version, h.Cluster, h.ID = backupVersion, from.Identity.Cluster, from.Identity.ID
	s := Summary{Header: h}
	if err := line(h); err != nil {
		return s, err
	}
	for rec, err := range from.Records(ctx) {
		if err == nil && !utf8.ValidString(rec.Key) {
			err = fmt.Errorf("record %q: its key is no text: %w", rec.Key, kb.ErrInvalid)
		}
		if err == nil {
			err = line(backupRecord{rec.Key, rec.Value})
		}
		if err != nil {
			return s, err
		}
		s.Records++
		progress("saved", s.Records, from.Count)
	}
	s.SHA256 = hex.EncodeToString(sum.Sum(nil))
	return s, errors.Join(line(backupEnd{s.Records, s.SHA256}), out.Flush(), packed.Close())
}

// Backup is an open file with a backup.
type Backup struct {
	Summary
	file *os.File
	path string
}

// OpenBackup opens a backup and checks all of it.
func OpenBackup(ctx context.Context, path string) (*Backup, error) {
	file, _, err := safeopen.Open(path)
	if err != nil {
		return nil, fmt.Errorf("backup: %w", err)
	}
	b := &Backup{file: file, path: path}
	for _, err := range b.records(ctx, &b.Summary) {
		if err != nil {
			return nil, errors.Join(err, file.Close())
		}
	}
	return b, nil
}

// Close closes the file.
func (b *Backup) Close() error { return b.file.Close() }

// Source are the backup's records. One at a time may be read.
func (b *Backup) Source() Source {
	return Source{
		Identity: Identity{Cluster: b.Cluster, ID: b.ID},
		Name:     fmt.Sprintf("restore of the backup of %s", b.Taken.UTC().Format(time.RFC3339)),
		Count:    b.Records,
		Records:  func(ctx context.Context) iter.Seq2[store.Record, error] { return b.records(ctx, new(Summary)) },
	}
}

// records reads from the beginning. An error is the last that it yields: a damaged end is one.
func (b *Backup) records(ctx context.Context, s *Summary) iter.Seq2[store.Record, error] {
	return func(yield func(store.Record, error) bool) {
		fail := func(err error) {
			yield(store.Record{}, fmt.Errorf("backup %s: %w", b.path, err))
		}
		if _, err := b.file.Seek(0, io.SeekStart); err != nil {
			fail(err)
			return
		}
		packed, err := gzip.NewReader(bufio.NewReader(b.file))
		if err != nil {
			fail(fmt.Errorf("it is no backup, or damaged: %w", err))
			return
		}
		r := backupReader{lines: bufio.NewReaderSize(packed, 1<<16), sum: sha256.New()}
		if s.Header, err = r.header(); err != nil {
			fail(err)
			return
		}
		for last := ""; ctx.Err() == nil; {
			rec, end, err := r.next()
			switch {
			case err != nil:
			case end != nil && end.Records != s.Records:
				err = fmt.Errorf("%d records instead of %d: %w", s.Records, end.Records, errDamaged)
			case end != nil:
				s.SHA256 = end.SHA256
				return
			case rec.Key <= last || !isRecord(rec.Key):
				err = fmt.Errorf("record %q is not in its place: %w", rec.Key, errDamaged)
			}
			if err != nil {
				fail(err)
				return
			}
			last = rec.Key
			s.Records++
			if !yield(store.Record{Key: rec.Key, Value: rec.Value}, nil) {
				return
			}
		}
		fail(ctx.Err())
	}
}

var errDamaged = errors.New("the file is damaged, or not whole")

// backupReader reads lines and adds them up.
type backupReader struct {
	lines *bufio.Reader
	sum   hash.Hash
}

// line returns a line, and the sum of all before it.
func (r *backupReader) line() (text []byte, before string, err error) {
	before = hex.EncodeToString(r.sum.Sum(nil))
	for {
		part, err := r.lines.ReadSlice('\n')
		if text = append(text, part...); len(text) > maxLine {
			return nil, "", fmt.Errorf("a line of more than %d bytes: %w", maxLine, errDamaged)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err != nil {
			return nil, "", fmt.Errorf("%w: %w", errDamaged, err)
		}
		_, _ = r.sum.Write(text) // never fails
		return text, before, nil
	}
}

func (r *backupReader) header() (Header, error) {
	text, _, err := r.line()
	if err != nil {
		return Header{}, err
	}
	// The version alone first: others may have other keys.
	var h Header
	if err := json.Unmarshal(text, &h); err != nil || h.Version == 0 {
		return h, fmt.Errorf("it is no backup of a broker's store: %w", kb.ErrInvalid)
	}
	if h.Version != backupVersion {
		return h, fmt.Errorf("it has version %d, this program reads %d: take the kernel-broker that wrote it: %w", h.Version, backupVersion, kb.ErrInvalid)
	}
	h = Header{}
	if err := strictjson.Decode(text, &h); err != nil {
		return h, fmt.Errorf("header: %w: %w", errDamaged, err)
	}
	return h, nil
}

// next returns a record, or the checked end.
func (r *backupReader) next() (rec backupRecord, end *backupEnd, err error) {
	text, before, err := r.line()
	if err != nil {
		return rec, nil, err
	}
	if err := strictjson.Decode(text, &rec); err == nil && rec.Key != "" {
		return rec, nil, nil
	}
	end = &backupEnd{}
	if err := strictjson.Decode(text, end); err != nil {
		return rec, nil, fmt.Errorf("%w: %w", errDamaged, err)
	}
	if end.SHA256 != before {
		return rec, nil, fmt.Errorf("its checksum is %s instead of %s: %w", before, end.SHA256, errDamaged)
	}
	// gzip has a checksum of its own, behind the last line.
	if _, err := r.lines.ReadByte(); !errors.Is(err, io.EOF) {
		return rec, nil, fmt.Errorf("something is behind its end: %w", errDamaged)
	}
	return rec, end, nil
}
