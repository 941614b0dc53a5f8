// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/filelock"
)

// State of a step, or of a whole run, which is Running, Done, Failed, Stopped
// or Killed.
type State string

// The states. Killed is never written: it is what a reader makes of Running when
// the process is gone.
const (
	Pending   State = "pending"   // nothing was done yet
	Queued    State = "queued"    // a job waits in Slurm
	Running   State = "running"   // it is being worked on
	Following State = "following" // another process works on it
	Done      State = "done"      // the result is there
	Failed    State = "failed"    // it ended with an error
	Stopped   State = "stopped"   // its run was stopped
	Killed    State = "killed"    // its process is gone
)

var states = []State{Pending, Queued, Running, Following, Done, Failed, Stopped}

// journalFormat is the version of the journal.
const journalFormat = 1

// maxJournals of one name are kept.
const maxJournals = 20

// Record is a line of a journal. The first one has the head of the run, each
// other one a change of one step, or of the run when it names no step.
type Record struct {
	At     time.Time `json:"at"`
	Head   *Head     `json:"head,omitempty"`
	Step   string    `json:"step,omitempty"`
	State  State     `json:"state,omitempty"`
	Key    string    `json:"key,omitempty"`
	Log    string    `json:"log,omitempty"`
	Job    string    `json:"job,omitempty"`
	Digest string    `json:"digest,omitempty"`
	Dir    string    `json:"dir,omitempty"`
	Cached bool      `json:"cached,omitempty"`
	Shared bool      `json:"shared,omitempty"`
	Done   int       `json:"done,omitempty"`
	Total  int       `json:"total,omitempty"`
	// Seconds that the work took, in whichever run, and the size of
	// its result.
	Seconds float64 `json:"seconds,omitempty"`
	Bytes   int64   `json:"bytes,omitempty"`
	Error   string  `json:"error,omitempty"`
}

// Head says what a run is.
type Head struct {
	Format int      `json:"format"`
	Name   string   `json:"name"`
	ID     string   `json:"id"`
	Where  string   `json:"where"`
	Host   string   `json:"host"`
	PID    int      `json:"pid"`
	Steps  []string `json:"steps"`
}

// journal is written by the run alone, and says that the run is alive by its
// lock.
type journal struct {
	dir  string
	lock *filelock.Lock

	mu   sync.Mutex
	file *os.File
}

func (s Store) builds(name string) string { return filepath.Join(s.Dir, "builds", name) }

// begin makes the journal of a new run.
func (s Store) begin(name, where string, steps []string) (*journal, error) {
	if !stepName.MatchString(name) {
		return nil, fmt.Errorf("run %q: use lower-case letters, digits, dot, dash and underscore", name)
	}
	var nonce [3]byte
	_, _ = rand.Read(nonce[:]) // it never fails
	now := time.Now().UTC()
	// The order of names is the order of time.
	id := now.Format("20060102T150405.000000000Z") + "-" + hex.EncodeToString(nonce[:])
	j := &journal{dir: filepath.Join(s.builds(name), id)}
	lock, err := filelock.Try(filepath.Join(j.dir, "lock"))
	if err != nil {
		return nil, err
	}
	j.lock = lock
	host, err := os.Hostname()
	if err != nil {
		host = "unknown" // for information only
	}
	j.file, err = os.OpenFile(filepath.Join(j.dir, "journal"), os.O_CREATE|os.O_WRONLY|os.O_EXCL|os.O_APPEND, 0o644)
	if err == nil {
		err = j.write(Record{At: now, Head: &Head{Format: journalFormat, Name: name, ID: id, Where: where,
			Host: host, PID: os.Getpid(), Steps: steps}})
	}
	if err == nil {
		err = s.forget(name)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("journal: %w", err), j.close())
	}
	return j, nil
}

// forget removes journals of old runs that ended.
func (s Store) forget(name string) error {
	ids, err := s.Runs(name)
	if err != nil || len(ids) <= maxJournals {
		return err
	}
	for _, id := range ids[maxJournals:] {
		dir := filepath.Join(s.builds(name), id)
		lock, err := filelock.Try(filepath.Join(dir, "lock"))
		if errors.Is(err, filelock.ErrHeld) {
			continue
		}
		if err == nil {
			err = os.RemoveAll(dir)
			lock.Release()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Runs are the ids of the runs of that name, the newest first.
func (s Store) Runs(name string) ([]string, error) {
	entries, err := os.ReadDir(s.builds(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var ids []string
	for _, entry := range entries {
		if entry.IsDir() {
			ids = append(ids, entry.Name())
		}
	}
	slices.Sort(ids)
	slices.Reverse(ids)
	return ids, err
}

// write appends a line. It is on the disk when write returns, unless it only
// says how far a step is.
func (j *journal) write(r Record) error {
	if r.At.IsZero() {
		r.At = time.Now().UTC()
	}
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	// One write for one line: a reader sees all of it or a torn end.
	if _, err := j.file.Write(append(bytes.ReplaceAll(text, []byte("\n"), []byte(" ")), '\n')); err != nil {
		return err
	}
	if (r.Total > 0 || r.Done > 0) && !r.State.Ended() {
		return nil
	}
	return j.file.Sync()
}

func (j *journal) close() error {
	var err error
	if j.file != nil {
		err = j.file.Close()
	}
	if j.lock != nil {
		j.lock.Release()
	}
	return err
}
