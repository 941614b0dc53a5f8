package audit

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// doubtPause lies between two tries to go on after a failed sync, each of which
// may leave a file behind.
const doubtPause = time.Minute

// doubt is what a failed sync leaves. Linux reports an error once and may drop
// the pages that it could not write: the next sync passes, and what is read back
// tells nothing. So the records since the last good one are in doubt for good.
type doubt struct {
	from, to uint64
	cause    error
	again    time.Time // no try to go on before that
}

// Error implements error.
func (d *doubt) Error() string {
	return fmt.Sprintf("records %d to %d may not be on disk, a sync failed: %v", d.from, d.to, d.cause)
}

// Unwrap returns what the system said.
func (d *doubt) Unwrap() error { return d.cause }

// doubts needs l.mu. It notes that a sync failed.
func (l *Log) doubts(err error) {
	d := &doubt{from: min(l.synced+1, l.last.Seq), to: l.last.Seq, cause: err, again: l.o.Now().Add(doubtPause)}
	l.doubt, l.lost = d, append(l.lost, d)
	l.o.Log.Error("audit log: records are in doubt", "dir", l.o.Dir, "from", d.from, "to", d.to, "error", err)
}

// doubtful needs l.mu. It returns why a record cannot be counted on.
func (l *Log) doubtful(seq uint64) error {
	for _, d := range l.lost {
		if d.from <= seq && seq <= d.to {
			return d
		}
	}
	return nil
}

// goOn needs l.mu. It leaves a file whose end is in doubt as it is, and begins
// another with a record that says so: when that is on disk the log goes on.
func (l *Log) goOn() error {
	d := l.doubt
	if now := l.o.Now(); now.Before(d.again) {
		return fmt.Errorf("%w; nothing is recorded before the log could go on in another file, which is tried at %s",
			d, d.again.UTC().Format(time.RFC3339))
	}
	d.again = l.o.Now().Add(doubtPause)
	if before := l.file; before.Name() != filepath.Join(l.o.Dir, nameOf(l.last.Seq+1)) {
		next, err := create(l.o.Dir, l.last.Seq+1)
		if err != nil {
			return err
		}
		if err := before.Close(); err != nil {
			l.o.Log.Warn("audit log: file not closed", "file", before.Name(), "error", err)
		}
		l.file, l.size, l.torn, l.open = next, 0, nil, false
	}
	if len(l.torn) > 0 {
		if err := l.mend(); err != nil {
			return err
		}
	}
	e := Entry{Kind: KindRecovered, Reason: d.Error() + "; what was to wait for them was refused"}
	if _, err := l.write(record{Entry: e.clipped()}); err != nil {
		return err
	}
	if err := l.file.Sync(); err != nil {
		l.doubts(err)
		return l.doubt
	}
	if err := l.note(l.last); err != nil {
		return err
	}
	l.synced, l.doubt = l.last.Seq, nil
	l.o.Log.Warn("audit log goes on in another file", "dir", l.o.Dir, "record", l.last.Seq)
	return nil
}

func (l *Log) lazySync() {
	l.mu.Lock()
	l.late = nil
	seq, closed := l.last.Seq, l.file == nil
	l.mu.Unlock()
	if closed {
		return
	}
	if err := l.sync(seq); err != nil {
		l.o.Log.Error("audit log not on disk", "dir", l.o.Dir, "error", err)
	}
}

// sync returns when a record is on disk and the head says so. Those who wait at
// the same time share one call to the disk.
func (l *Log) sync(seq uint64) error {
	l.syncing.Lock()
	defer l.syncing.Unlock()
	l.mu.Lock()
	file, last, synced, err := l.file, l.last, l.synced, l.doubtful(seq)
	l.mu.Unlock()
	switch {
	case err != nil:
		return err
	case synced >= seq:
		return nil
	case file == nil:
		return errors.New("closed")
	}
	err = file.Sync()
	l.mu.Lock()
	defer l.mu.Unlock()
	// A rotation in between has synced the file itself, and closed it; or it
	// could not, which this sync does not hear of.
	if err != nil && !errors.Is(err, os.ErrClosed) {
		l.doubts(err)
	}
	if err := l.doubtful(seq); err != nil {
		return err
	}
	if l.synced >= last.Seq {
		return nil
	}
	if err := l.note(last); err != nil {
		return err
	}
	l.synced = last.Seq
	return nil
}

// note writes the head in place. Its length grows only, so that nothing of an
// older one is left behind it.
func (l *Log) note(h Head) error {
	_, err := l.head.WriteAt([]byte(h.String()+"\n"), 0)
	return err
}
