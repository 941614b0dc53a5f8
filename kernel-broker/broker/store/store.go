// SPDX-License-Identifier: Apache-2.0

// Package store is the durable store that the broker needs: keys with values, changed all or nothing and fenced by
// revision.
//
// Nobody watches it: one broker acts on a namespace, and knows its own changes.
//
// Every change of the store has a revision, a number that only grows. A writer states which revision of a key it has
// read, and the commit is refused if the key has changed since. So a broker that was suspended and resumes cannot
// overwrite its successor's decisions, without a lock that has to be held or to expire.
//
// The package imports only the domain. etcdstore implements it, and tests/support/memstore for unit tests; their
// conformance suite is in the tests of etcdstore.
package store

import (
	"context"
	"errors"
	"fmt"
	"strings"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// AnyRevision as Write.Expect makes that write unconditional.
const AnyRevision int64 = -1

// Limits of one commit that every store has unless its server has smaller ones, see Store.Limits. They are below the
// defaults of an etcd server.
const (
	MaxWrites      = 128
	MaxCommitBytes = 1 << 20 // keys and values together
)

// Limits of one commit.
type Limits struct {
	Writes int
	Bytes  int // keys and values together
}

// MostLimits are those of a store whose server has no smaller ones.
var MostLimits = Limits{Writes: MaxWrites, Bytes: MaxCommitBytes}

// MaxRange is the maximum number of records of one Range.
const MaxRange = 256

// Keys that are no records but the store's own.
const (
	// ActingKey names the broker that acts.
	ActingKey = "acting"
	// EpochKey has the number of the last time that a broker began to act.
	EpochKey = "epoch"
	// WaitingPrefix begins the keys of brokers that wait.
	WaitingPrefix = "waiting/"
	// PeersPrefix begins the keys of brokers that run. They end with their brokers.
	PeersPrefix = "peers/"
	// CheckPrefix begins the keys with which a broker tries what it may do. They end by themselves.
	CheckPrefix = "check/"
)

// Own reports whether a key is the store's own.
func Own(key string) bool {
	return key == ActingKey || key == EpochKey || strings.HasPrefix(key, WaitingPrefix) || strings.HasPrefix(key, PeersPrefix) || strings.HasPrefix(key, CheckPrefix)
}

// Record is one key as it is now.
type Record struct {
	Key      string
	Value    []byte
	Revision int64 // of the last change of this key
}

// Write is one change in a commit.
type Write struct {
	Key    string
	Value  []byte
	Delete bool // remove the key; removing a missing key changes nothing
	// Expect is the revision that the key must have now. 0: the key must not
	// exist. AnyRevision: no expectation.
	Expect int64
}

// Store is a namespace of keys. All methods are safe for concurrent use. Keys are relative to the namespace, which is
// chosen when the store is opened. Values are copied in both directions.
//
// Revisions come from the whole server, so in one namespace they grow but may skip numbers. The first revision of a
// write is at least 2.
type Store interface {
	// Get returns the newest committed state of a key, or ErrNotFound.
	Get(ctx context.Context, key string) (Record, error)

	// List returns every record whose key begins with prefix, sorted by key,
	// as one consistent snapshot, and the revision of that snapshot.
	List(ctx context.Context, prefix string) (records []Record, at int64, err error)

	// Range returns at most limit records from the key from (included) to the key before (excluded), sorted by key, as
	// one consistent snapshot. Its cost depends on its result, not on the size of the store. There is no Range
	// backwards: etcd would read all values in the range and drop the excess afterwards. Callers that want the newest
	// records must know where those start.
	//
	// ErrInvalid: the range is empty, or the limit is not within 1 to MaxRange.
	Range(ctx context.Context, from, before string, limit int) ([]Record, error)

	// Commit applies all writes or none and returns the revision that they share. A commit that changes nothing (no
	// writes, or only deletions of missing keys) returns the current revision.
	//
	// Errors: *ConflictError (is ErrConflict) names the first key, in the order of the writes, whose expectation failed;
	// nothing was applied. ErrInvalid and ErrTooLarge: rejected before anything was applied. ErrFull: the server has no
	// room for data; nothing was applied. ErrUnavailable: no answer in time, and the outcome is UNKNOWN; the commit may
	// even be applied after this returns. The caller must read the keys again; repeating a fenced commit is safe, since
	// it conflicts if the first one was applied.
	Commit(ctx context.Context, writes ...Write) (int64, error)

	// Limits are those of one commit now. They may become smaller while the store is in use, when its server refuses a
	// commit that they allow: that commit returns ErrTooLarge, and smaller ones are accepted.
	Limits() Limits

	// Close ends the store. Calls after it return ErrUnavailable. Closing
	// twice is fine.
	Close() error
}

// Errors for errors.Is; Store documents them. Each also is the error of the domain that its callers meet.
var (
	ErrNotFound    error = &sentinel{"not found", kb.ErrNotFound}
	ErrConflict    error = &sentinel{"revision conflict", kb.ErrUnavailable}
	ErrUnavailable error = &sentinel{"store unavailable", kb.ErrUnavailable}
	ErrFull        error = &sentinel{"store full", kb.ErrUnavailable}
	ErrTooLarge          = errors.New("commit too large")
	ErrCompacted         = errors.New("history not kept")
	ErrInvalid           = errors.New("invalid request")
	// ErrOvertaken: another broker acts on the store. Nothing was applied.
	ErrOvertaken error = &sentinel{"lease lost", kb.ErrUnavailable}
)

type sentinel struct {
	text string
	is   error
}

func (s *sentinel) Error() string { return s.text }
func (s *sentinel) Unwrap() error { return s.is }

// ConflictError names the key that failed a commit.
type ConflictError struct {
	Key    string
	Expect int64 // revision that the writer had read; 0: the key must not exist
	Have   int64 // revision in the store; 0: the key does not exist
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("key %q: %v: expected %s, found %s", e.Key, ErrConflict,
		revisionText(e.Expect), revisionText(e.Have))
}

// Unwrap makes errors.Is(err, ErrConflict) hold.
func (e *ConflictError) Unwrap() error { return ErrConflict }

func revisionText(revision int64) string {
	if revision == 0 {
		return "no key"
	}
	return fmt.Sprintf("revision %d", revision)
}

// Check rejects commits that a store with these limits does not accept, the same for all implementations of Store.
func Check(writes []Write, most Limits) error {
	if len(writes) > most.Writes {
		return fmt.Errorf("%w: %d writes, at most %d", ErrTooLarge, len(writes), most.Writes)
	}
	seen := make(map[string]bool, len(writes))
	size := 0
	for _, w := range writes {
		switch {
		case w.Key == "":
			return fmt.Errorf("%w: empty key", ErrInvalid)
		case seen[w.Key]:
			return fmt.Errorf("key %q: %w: twice in one commit", w.Key, ErrInvalid)
		case w.Expect < AnyRevision:
			return fmt.Errorf("key %q: %w: expects revision %d", w.Key, ErrInvalid, w.Expect)
		case w.Delete && len(w.Value) > 0:
			return fmt.Errorf("key %q: %w: a deletion with a value", w.Key, ErrInvalid)
		}
		seen[w.Key] = true
		size += len(w.Key) + len(w.Value)
	}
	if size > most.Bytes {
		return fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, size, most.Bytes)
	}
	return nil
}

// Split makes commits of at most half of what a store takes, in the order of the writes. They do not change all at once.
func Split(writes []Write, most Limits) [][]Write {
	var parts [][]Write
	size := 0
	for i, w := range writes {
		size += len(w.Key) + len(w.Value)
		if i == 0 || len(parts[len(parts)-1]) >= most.Writes/2 || size > most.Bytes/2 {
			parts, size = append(parts, nil), len(w.Key)+len(w.Value)
		}
		parts[len(parts)-1] = append(parts[len(parts)-1], w)
	}
	return parts
}

// CheckRange rejects ranges that no store accepts, the same for all implementations of Store.
func CheckRange(from, before string, limit int) error {
	switch {
	case from >= before:
		return fmt.Errorf("%w: its end is not after its start", ErrInvalid)
	case limit < 1 || limit > MaxRange:
		return fmt.Errorf("%w: limit %d is not within 1 to %d", ErrInvalid, limit, MaxRange)
	}
	return nil
}
