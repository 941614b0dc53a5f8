// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// resumePause lies between two tries to go on after a failed sync, each of which
// may leave a file behind.
const resumePause = time.Minute

// uncertainTail is what a failed sync leaves. Linux reports an error once and may drop
// the pages that it could not write: the next sync passes, and what is read back
// tells nothing. So the records since the last good one stay uncertain.
type uncertainTail struct {
	from, to uint64
	cause    error
	again    time.Time // no try to go on before that
	// left by an earlier writer, of which nobody knows whether a sync failed; cause
	// is then what keeps this one from going on, if anything does.
	left bool
}

// Error implements error.
func (d *uncertainTail) Error() string {
	switch {
	case d.left && d.cause != nil:
		return fmt.Sprintf("%s, and that cannot be recorded: %v", d.description(), d.cause)
	case d.left:
		return d.description()
	}
	return fmt.Sprintf("records %d to %d may not be on disk, a sync failed: %v", d.from, d.to, d.cause)
}

// description of a tail that an earlier writer left.
func (d *uncertainTail) description() string {
	return fmt.Sprintf("records %d to %d were written, and not known to be on the disk when their writer ended", d.from, d.to)
}

// Unwrap returns what the system said.
func (d *uncertainTail) Unwrap() error { return d.cause }

// markUncertain needs l.mu. It notes that a sync failed.
func (l *Log) markUncertain(err error) {
	d := &uncertainTail{from: min(l.synced+1, l.last.Seq), to: l.last.Seq, cause: err, again: l.o.Now().Add(resumePause)}
	l.uncertain, l.uncertainTails = d, append(l.uncertainTails, d)
	l.o.Log.Error("audit log: records may not be on disk", "dir", l.o.Dir, "from", d.from, "to", d.to, "error", err)
}

// unsynced has the log go on in another file where an earlier writer ended with
// records that the head does not know to be on the disk: it was killed, or a sync
// had failed, which no later sync tells. A disk that does not let it go on leaves
// the rest of the broker at work; Health says so, and it is tried again.
func (l *Log) unsynced() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.uncertain = &uncertainTail{from: l.synced + 1, to: l.last.Seq, left: true}
	if err := l.resumeInNewFile(); err != nil {
		l.o.Log.Error("audit log does not go on", "dir", l.o.Dir, "error", err)
	}
}

// uncertaintyOf needs l.mu. It returns why a record cannot be counted on.
func (l *Log) uncertaintyOf(seq uint64) error {
	for _, d := range l.uncertainTails {
		if d.from <= seq && seq <= d.to {
			return d
		}
	}
	return nil
}

// resumeInNewFile needs l.mu. It leaves a file whose end is uncertain as it is, and begins
// another with a record that says so: when that is on disk the log goes on.
func (l *Log) resumeInNewFile() error {
	d := l.uncertain
	if now := l.o.Now(); now.Before(d.again) {
		return fmt.Errorf("%w; nothing is recorded before the log could go on in another file, which is tried at %s",
			d, d.again.UTC().Format(time.RFC3339))
	}
	d.again = l.o.Now().Add(resumePause)
	err := l.another(d)
	if d.left {
		d.cause = err
	}
	if err != nil {
		return err
	}
	if err := l.file.Sync(); err != nil {
		l.markUncertain(err)
		return l.uncertain
	}
	if err := l.note(l.last); err != nil {
		return err
	}
	l.synced, l.uncertain = l.last.Seq, nil
	l.o.Log.Warn("audit log goes on in another file", "dir", l.o.Dir, "record", l.last.Seq)
	return nil
}

// another needs l.mu. It begins a file, unless one was begun and has no record yet,
// and writes which records are uncertain.
func (l *Log) another(d *uncertainTail) error {
	if d.left && len(l.torn) > 0 {
		// A torn line is no problem while it is ended and named in its own file.
		if err := l.recordTorn(); err != nil {
			return err
		}
	}
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
		if err := l.recordTorn(); err != nil {
			return err
		}
	}
	e := Entry{Kind: KindRecovered, Reason: d.Error() + "; what was to wait for them was refused"}
	if d.left {
		d.to = l.last.Seq
		e = Entry{Kind: KindUnsynced, Reason: d.description()}
	}
	_, err := l.write(record{Entry: e.clipped()})
	return err
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
	file, last, synced, err := l.file, l.last, l.synced, l.uncertaintyOf(seq)
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
		l.markUncertain(err)
	}
	if err := l.uncertaintyOf(seq); err != nil {
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
