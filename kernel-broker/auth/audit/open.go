// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/atomicfile"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/diskfull"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/safeopen"
)

// Open takes a folder over: it finds the last record, records what the head says to be missing, and brings to disk
// what it does not know yet. It does not check the whole log, which Verify does.
func Open(o Options) (_ *Log, err error) {
	o.MaxBytes = cmp.Or(o.MaxBytes, DefaultMaxBytes)
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Log = cmp.Or(o.Log, slog.Default())
	o.Reserve = cmp.Or(o.Reserve, DefaultReserve)
	if o.Space == nil {
		o.Space = diskfull.Space
	}
	l := &Log{o: o, last: Head{Digest: genesis}}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("audit log %q: %w", o.Dir, err), l.close())
		}
	}()
	if err := os.MkdirAll(o.Dir, 0o750); err != nil {
		return nil, err
	}
	if err := l.take(); err != nil {
		return nil, err
	}
	head, headErr := readHead(o.Dir)
	if err := l.resume(); err != nil {
		return nil, err
	}
	path := filepath.Join(o.Dir, headName)
	if head == nil && headErr == nil && l.last.Seq == 0 {
		// Never empty: an empty head would look like a damaged one.
		if err := atomicfile.Write(path, []byte(l.last.String()+"\n"), 0o640); err != nil {
			return nil, err
		}
	}
	if l.head, err = os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o640); err != nil {
		return nil, err
	}
	return l, l.compare(head, headErr)
}

// take makes this process the only writer.
func (l *Log) take() (err error) {
	if l.lock, err = os.OpenFile(filepath.Join(l.o.Dir, lockName), os.O_RDWR|os.O_CREATE, 0o640); err != nil {
		return err
	}
	if err = unix.Flock(int(l.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		return fmt.Errorf("another broker writes it: %w", kb.ErrFailedPrecondition)
	}
	return err
}

// resume finds the last record, which may be in the file before the last: a
// file is made before its first line is.
func (l *Log) resume() error {
	paths, err := logFiles(l.o.Dir)
	if err != nil {
		return err
	}
	for i := len(paths) - 1; i >= 0; i-- {
		end, torn, err := endOf(paths[i])
		if err != nil {
			return err
		}
		if l.file == nil {
			last, err := os.OpenFile(paths[i], os.O_WRONLY|os.O_APPEND, 0)
			if err != nil {
				return err
			}
			l.file, l.torn = last, torn
			info, err := last.Stat()
			if err != nil {
				return err
			}
			l.size = info.Size()
		}
		if end != nil {
			l.last = *end
			return nil
		}
	}
	if l.file == nil {
		return l.begin()
	}
	return nil
}

// compare records what the head knows of and the files do not have.
func (l *Log) compare(head *Head, err error) error {
	reason := ""
	switch {
	case err != nil:
		reason = fmt.Sprintf("the head could not be read: %v", err)
	case head == nil && l.last.Seq > 0:
		reason = "there was no head"
	case head != nil && head.Seq > l.last.Seq:
		reason = fmt.Sprintf("the head says that there were %d records, and there are %d: the last ones are gone", head.Seq, l.last.Seq)
	case head != nil && head.Seq == l.last.Seq && head.Digest != l.last.Digest:
		reason = fmt.Sprintf("the head knows record %d with another digest: it was changed", head.Seq)
	case head != nil && head.Seq < l.last.Seq:
		// A disk that fails leaves the rest of the broker at work, and Health says so.
		l.synced = head.Seq
		if err := l.sync(l.last.Seq); err != nil {
			l.o.Log.Error("audit log not on disk", "dir", l.o.Dir, "error", err)
		}
		return nil
	default:
		l.synced = l.last.Seq
		return nil
	}
	l.o.Log.Error("audit log is not as it was left", "dir", l.o.Dir, "reason", reason)
	if _, err := l.Append(Entry{Kind: KindRecovered, Reason: reason}, true); err != nil {
		return err
	}
	// The head was written over one that may be longer.
	return l.head.Truncate(int64(len(l.last.String()) + 1))
}

// endOf returns the last record of a file, nil if it has none, and whether the
// file ends with a piece of a line.
func endOf(path string) (last *Head, torn bool, err error) {
	err = scan(path, func(line []byte, whole bool, r *record) {
		torn = !whole
		if r != nil {
			last = &Head{Seq: r.Seq, Digest: digest(line)}
		}
	})
	return last, torn, err
}

// scan reads a file line by line, each without its end, with the record that it is, and whether it has an end. A line that
// is longer than any record comes in pieces, none of which is a record.
func scan(path string, each func(line []byte, whole bool, r *record)) error {
	file, _, err := safeopen.Open(path)
	if err != nil {
		return fmt.Errorf("audit log: %w", err)
	}
	defer file.Close()
	for from := bufio.NewReaderSize(file, maxLine); ; {
		line, err := from.ReadSlice('\n')
		whole := err == nil || errors.Is(err, bufio.ErrBufferFull)
		switch {
		case !whole && !errors.Is(err, io.EOF):
			return fmt.Errorf("audit log %q: %w", path, err)
		case len(line) == 0:
			return nil
		}
		line = bytes.TrimSuffix(line, []byte("\n"))
		var found *record
		if r, err := decode(line); err == nil && whole {
			found = &r
		}
		each(line, whole, found)
	}
}
