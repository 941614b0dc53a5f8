// SPDX-License-Identifier: Apache-2.0

// Package audit keeps the record of who did what and whether they might, so
// that a line that was changed, moved or taken out shows.
//
// The log is JSON lines in files. Each line carries its number and the SHA-256
// digest of the line before it, over all files; a file is named by the number
// of its first line and is never renamed, cut or rewritten, so that it may have
// the append-only attribute. Beside the files a head names the last line that
// is on disk: with it a tail that was cut off shows, too. Who can write files
// and head can make another log of them. Against that helps a head that is kept
// elsewhere: each line's number and digest also go to the process's log.
//
// Of several brokers on one folder each has a chain of its own in a folder below,
// and locks no other: one that hangs keeps nobody from acting. A chain witnesses the
// heads of the others, so they are verified together.
//
// A writer that is killed in the middle of a line leaves a piece of one. The
// next writer ends that line as one that is torn, and leaves it where it is. The
// chain goes on behind it, so no record can be passed off as a torn line.
//
// After a sync that failed nobody can say which of the last records are on disk.
// The log writes none before it could go on in another file, whose first record
// says which those are. A writer that was killed leaves a head that may be behind
// the files: the next one brings them to disk first.
package audit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
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
	// resumePause lies between two tries to go on after a failed sync, each of which may leave a file behind.
	resumePause = time.Minute
)

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

	mu     sync.Mutex
	file   file
	size   int64
	last   Head // of what was written
	torn   bool // the last line of file is a piece of one, without an end
	late   *time.Timer
	synced uint64
	failed error   // why the last record was not written; nil: it was
	tails  []*tail // all that were uncertain; the last one may be still
	space  space
}

// file is an *os.File of the log.
type file interface {
	io.WriteCloser
	Name() string
	Sync() error
}

// tail is what a failed sync leaves. Linux reports an error once and may drop the pages that it could not write: the next
// sync passes, and what is read back tells nothing. So the records since the last good sync stay uncertain.
type tail struct {
	from, to uint64
	cause    error
	said     bool      // a record on disk names it
	again    time.Time // no try to write that record before
}

func (t *tail) Error() string {
	return fmt.Sprintf("records %d to %d may not be on disk, a sync failed: %v", t.from, t.to, t.cause)
}

// Unwrap returns what the system said.
func (t *tail) Unwrap() error { return t.cause }

// uncertain needs l.mu. It is the tail that keeps the next record from being written; nil: none does.
func (l *Log) uncertain() *tail {
	if n := len(l.tails); n > 0 && !l.tails[n-1].said {
		return l.tails[n-1]
	}
	return nil
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
	if err == nil && wait {
		// Others who write in between share the call to the disk.
		l.mu.Unlock()
		l.mu.Lock()
		err = l.sync(last.Seq)
	}
	if err != nil {
		err = fmt.Errorf("audit log %q: %w: %w", l.o.Dir, kb.ErrUnavailable, err)
	}
	l.mu.Unlock()
	if err != nil {
		return 0, err
	}
	l.log(e, last, line)
	return last.Seq, nil
}

// append needs l.mu.
func (l *Log) append(e Entry) (int, error) {
	if l.file == nil {
		return 0, errors.New("closed")
	}
	if t := l.uncertain(); t != nil {
		if err := l.goOn(t); err != nil {
			return 0, err
		}
	}
	if err := l.endTorn(); err != nil {
		return 0, err
	}
	if l.size >= l.o.MaxBytes {
		before := filepath.Base(l.file.Name())
		if err := l.syncFile(); err != nil {
			return 0, err
		}
		if err := l.begin(); err != nil {
			return 0, err
		}
		if _, err := l.write(record{Entry: Entry{Kind: KindRotated, Object: before}}); err != nil {
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
	l.torn = n > 0
	return 0, err
}

// endTorn needs l.mu. A line that lacks nothing but its end is no record either then.
func (l *Log) endTorn() error {
	if !l.torn {
		return nil
	}
	n, err := l.file.Write([]byte(tornEnd + "\n"))
	l.size += int64(n)
	if err != nil {
		return err
	}
	l.torn = false
	l.o.Log.Warn("audit log: a line was torn when a writer ended or the disk was full", "file", l.file.Name())
	return nil
}

// begin needs l.mu. It goes on in a new file, unless one was begun and has no record yet.
func (l *Log) begin() error {
	path := filepath.Join(l.o.Dir, nameOf(l.last.Seq+1))
	if l.file != nil && l.file.Name() == path {
		return nil
	}
	next, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o640)
	if err != nil {
		return err
	}
	if err := atomicfile.SyncDir(l.o.Dir); err != nil {
		return errors.Join(err, next.Close())
	}
	if l.file != nil {
		if err := l.file.Close(); err != nil {
			l.o.Log.Warn("audit log: file not closed", "file", l.file.Name(), "error", err)
		}
	}
	l.file, l.size, l.torn = next, 0, false
	return nil
}

// goOn needs l.mu. It leaves a file whose end is uncertain as it is, and begins another with a record that says so: when
// that is on disk the log goes on.
func (l *Log) goOn(t *tail) error {
	now := l.o.Now()
	if now.Before(t.again) {
		return fmt.Errorf("%w; nothing is recorded before the log could go on in another file, which is tried at %s", t, t.again.UTC().Format(time.RFC3339))
	}
	t.again = now.Add(resumePause)
	// A torn line at the end of the file stays as it is.
	if err := l.begin(); err != nil {
		return err
	}
	if err := l.endTorn(); err != nil {
		return err
	}
	e := Entry{Kind: KindRecovered, Reason: t.Error() + "; what was to wait for them was refused"}
	if _, err := l.write(record{Entry: e.clipped()}); err != nil {
		return err
	}
	if err := l.syncFile(); err != nil {
		return err
	}
	l.o.Log.Warn("audit log goes on in another file", "dir", l.o.Dir, "record", l.last.Seq)
	t.said = true
	return nil
}

// syncFile needs l.mu. It brings the file to disk and notes that in the head.
func (l *Log) syncFile() error {
	if err := l.file.Sync(); err != nil {
		t := &tail{from: min(l.synced+1, l.last.Seq), to: l.last.Seq, cause: err, again: l.o.Now().Add(resumePause)}
		l.tails = append(l.tails, t)
		l.o.Log.Error("audit log: records may not be on disk", "dir", l.o.Dir, "from", t.from, "to", t.to, "error", err)
		return t
	}
	// The head is written in place: its length grows only, so that nothing of an older one is left behind it. Open cuts off
	// what is left of one that was longer.
	if _, err := l.head.WriteAt([]byte(l.last.String()+"\n"), 0); err != nil {
		return err
	}
	l.synced = l.last.Seq
	return nil
}

// sync needs l.mu. It returns when a record is on disk and the head says so.
func (l *Log) sync(seq uint64) error {
	for _, t := range l.tails {
		if t.from <= seq && seq <= t.to {
			return t
		}
	}
	switch {
	case l.synced >= seq:
		return nil
	case l.file == nil:
		return errors.New("closed")
	}
	return l.syncFile()
}

func (l *Log) lazySync() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.late = nil
	if l.file == nil {
		return
	}
	if err := l.sync(l.last.Seq); err != nil {
		l.o.Log.Error("audit log not on disk", "dir", l.o.Dir, "error", err)
	}
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
	defer l.mu.Unlock()
	if l.file == nil {
		return nil
	}
	if l.late != nil {
		l.late.Stop()
	}
	var err error
	if t := l.uncertain(); t != nil {
		// The last chance to have it on record.
		t.again = time.Time{}
		err = l.goOn(t)
	}
	return errors.Join(err, l.sync(l.last.Seq), l.close())
}

// close needs l.mu.
func (l *Log) close() error {
	var err error
	if l.file != nil {
		err = l.file.Close()
	}
	for _, file := range []*os.File{l.head, l.lock} {
		if file != nil {
			err = errors.Join(err, file.Close())
		}
	}
	l.file = nil
	return err
}

// log writes the same facts to the process's log.
func (l *Log) log(e Entry, h Head, size int) {
	attrs := []slog.Attr{slog.String("head", h.String()), slog.Int("bytes", size)}
	v := reflect.ValueOf(e)
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		if !v.Field(i).IsZero() {
			attrs = append(attrs, slog.Any(name, reflect.Indirect(v.Field(i)).Interface()))
		}
	}
	l.o.Log.LogAttrs(context.Background(), slog.LevelInfo, "audit", attrs...)
}
