// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/atomicfile"
)

const (
	// DefaultMaxBytes of a file, before the next one is begun.
	DefaultMaxBytes = 64 << 20
	// tornEnd ends a line that will never be whole.
	tornEnd = " torn"
	// lazySyncDelay is how long a record may stay off the disk that nobody waits for.
	lazySyncDelay = time.Second
)

// Options of a log.
type Options struct {
	Dir string
	// MaxBytes defaults to DefaultMaxBytes.
	MaxBytes int64
	// Now defaults to time.Now.
	Now func() time.Time
	// Reserve is the room, in bytes, that is for records of what changes
	// something; it defaults to DefaultReserve, or a twentieth of a file system
	// for which that is much. Space tells what is free of how much, and defaults
	// to asking the system.
	Reserve uint64
	Space   func(dir string) (free, size uint64, err error)
	// Log gets every record, too; it defaults to slog.Default.
	Log *slog.Logger
}

// Log is a folder's one writer. Safe for concurrent use.
type Log struct {
	o    Options
	lock *os.File
	head *os.File

	mu             sync.Mutex
	file           file
	size           int64
	last           Head     // of what was written
	torn           [][]byte // lines, the last without its end, that no record names yet
	open           bool     // the last of torn has no end yet
	late           *time.Timer
	synced         uint64
	failed         error            // why the last record was not written; nil: it was
	uncertain      *uncertainTail   // what keeps the next record from being written
	uncertainTails []*uncertainTail // all there were
	space          space

	syncing sync.Mutex // one call to the disk at a time; before mu
}

// file is an *os.File of the log.
type file interface {
	io.WriteCloser
	Name() string
	Sync() error
}

// Append writes a record. With wait it returns when the record is on disk:
// what must not happen unrecorded happens after that. An error is
// kernelbroker.ErrUnavailable and means that nothing may follow: there is no
// such record, or one of which nobody knows whether it is on disk. A later
// record names the latter as uncertain.
func (l *Log) Append(e Entry, wait bool) (uint64, error) {
	e = e.clipped()
	l.mu.Lock()
	line, err := l.append(e)
	last := l.last
	l.failed = err
	if err == nil && !wait && l.late == nil {
		l.late = time.AfterFunc(lazySyncDelay, l.lazySync)
	}
	l.mu.Unlock()
	if err != nil {
		return 0, fmt.Errorf("audit log %q: %w: %w", l.o.Dir, kb.ErrUnavailable, err)
	}
	if wait {
		if err := l.sync(last.Seq); err != nil {
			return 0, fmt.Errorf("audit log %q: %w: %w", l.o.Dir, kb.ErrUnavailable, err)
		}
	}
	l.log(e, last, line)
	return last.Seq, nil
}

// append needs l.mu.
func (l *Log) append(e Entry) (int, error) {
	if l.file == nil {
		return 0, errors.New("closed")
	}
	if l.uncertain != nil {
		if err := l.resumeInNewFile(); err != nil {
			return 0, err
		}
	}
	if len(l.torn) > 0 {
		if err := l.recordTorn(); err != nil {
			return 0, err
		}
	}
	if l.size >= l.o.MaxBytes {
		if err := l.rotate(); err != nil {
			return 0, err
		}
	}
	return l.write(record{Entry: e})
}

// write needs l.mu. A line that cannot be written whole is torn.
func (l *Log) write(r record) (int, error) {
	r.Seq, r.Prev, r.At = l.last.Seq+1, l.last.Digest, l.o.Now().UTC()
	line, err := r.encode()
	if err != nil {
		return 0, err
	}
	n, err := l.file.Write(append(line, '\n'))
	l.size += int64(n)
	if n > len(line) {
		l.last = Head{Seq: r.Seq, Digest: digest(line)}
		return len(line), nil
	}
	if n > 0 {
		l.torn, l.open = append(l.torn, line[:n:n]), true
	}
	return 0, err
}

// recordTorn needs l.mu. It ends a torn line and records it.
func (l *Log) recordTorn() error {
	if l.open {
		// Even a line that lacks nothing but its end is no record then.
		n, err := l.file.Write([]byte(tornEnd + "\n"))
		l.size += int64(n)
		part := tornEnd[:min(n, len(tornEnd))]
		l.torn[len(l.torn)-1] = append(l.torn[len(l.torn)-1], part...)
		if err != nil {
			return err
		}
		l.open = false
	}
	torn := l.torn
	l.torn = nil
	e := Entry{Kind: KindRecovered, Reason: fmt.Sprintf("%d lines were torn when a writer ended or the disk was full", len(torn))}
	if _, err := l.write(record{Entry: e, Torn: tornOf(torn)}); err != nil {
		l.torn = append(torn, l.torn...)
		return err
	}
	l.o.Log.Warn("audit log: torn lines", "dir", l.o.Dir, "lines", len(torn), "record", l.last.Seq)
	return nil
}

// rotate needs l.mu. It goes on in a new file.
func (l *Log) rotate() error {
	if err := l.file.Sync(); err != nil {
		l.markUncertain(err)
		return l.uncertain
	}
	before := filepath.Base(l.file.Name())
	next, err := create(l.o.Dir, l.last.Seq+1)
	if err != nil {
		return err
	}
	if err := l.file.Close(); err != nil {
		l.o.Log.Warn("audit log: file not closed", "file", before, "error", err)
	}
	l.file, l.size = next, 0
	_, err = l.write(record{Entry: Entry{Kind: KindRotated, Object: before}})
	return err
}

func create(dir string, first uint64) (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(dir, nameOf(first)), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o640)
	if err != nil {
		return nil, err
	}
	if err := atomicfile.SyncDir(dir); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// Head is the last record, on disk or not.
func (l *Log) Head() Head {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

// Close brings everything to disk and lets the folder go.
func (l *Log) Close() error {
	l.mu.Lock()
	if l.file == nil {
		l.mu.Unlock()
		return nil
	}
	if l.late != nil {
		l.late.Stop()
		l.late = nil
	}
	var resumeErr error
	if l.uncertain != nil {
		// The last chance to have it on record.
		l.uncertain.again = time.Time{}
		resumeErr = l.resumeInNewFile()
	}
	last := l.last.Seq
	l.mu.Unlock()
	err := errors.Join(resumeErr, l.sync(last))
	l.mu.Lock()
	defer l.mu.Unlock()
	err = errors.Join(err, l.file.Close(), l.head.Close(), l.lock.Close())
	l.file = nil
	return err
}

// log writes the same facts to the process's log.
func (l *Log) log(e Entry, h Head, size int) {
	fields := []slog.Attr{slog.String("head", h.String()), slog.Int("bytes", size), slog.String("kind", e.Kind)}
	for _, f := range []struct{ key, value string }{
		{"who", e.Who}, {"by", e.By}, {"from", e.From}, {"action", e.Action}, {"object", e.Object}, {"via", e.Via}, {"reason", e.Reason},
		{"stated", e.Stated}, {"outcome", e.Outcome},
	} {
		if f.value != "" {
			fields = append(fields, slog.String(f.key, f.value))
		}
	}
	if e.UID != nil {
		fields = append(fields, slog.Uint64("uid", uint64(*e.UID)))
	}
	if e.Allowed != nil {
		fields = append(fields, slog.Bool("allowed", *e.Allowed))
	}
	if e.Of != 0 {
		fields = append(fields, slog.Uint64("of", e.Of))
	}
	if e.Unrecorded != 0 {
		fields = append(fields, slog.Uint64("unrecorded", e.Unrecorded))
	}
	l.o.Log.LogAttrs(context.Background(), slog.LevelInfo, "audit", fields...)
}
