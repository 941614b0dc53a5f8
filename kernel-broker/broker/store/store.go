// SPDX-License-Identifier: Apache-2.0

// Package store is the durable store that the broker needs: keys with values, changed all or nothing, fenced by
// revision, and watched in order.
//
// Every change of the store has a revision, a number that only grows. A writer states which revision of a key it has
// read, and the commit is refused if the key has changed since. So a broker that was suspended and resumes cannot
// overwrite its successor's decisions, without a lock that has to be held or to expire.
//
// The package imports only the domain. etcdstore implements it, and tests/support/memstore for unit tests; their
// conformance suite is in the tests of etcdstore.
package store

import "context"

// AnyRevision as Write.Expect makes that write unconditional.
const AnyRevision int64 = -1

// Limits of one commit, below the defaults of an etcd server, so that all implementations accept the same commits.
const (
	MaxWrites      = 128
	MaxCommitBytes = 1 << 20 // keys and values together
)

// MaxRange is the maximum number of records of one Range.
const MaxRange = 256

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

// Event is one change of one key. For a deletion Value is nil and Revision is
// that of the deletion.
type Event struct {
	Record
	Deleted bool
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
	// as one consistent snapshot, and the revision of that snapshot: a Watch
	// after it misses nothing and repeats nothing.
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

	// Watch sends every change under prefix with a revision greater than after, in the order of revisions; changes of
	// one commit are adjacent, in no particular order. The channel is closed when ctx ends or the store is closed. A
	// slow reader loses nothing and costs memory.
	//
	// ErrCompacted: the history after that revision is compacted, or the revision is newer than the store (a restored
	// backup). The caller lists again and watches from there; Follow does so. If a running watch is lost (its history was
	// compacted in a long disconnect, the server has no leader), the channel is closed although ctx is alive, and the same
	// applies.
	Watch(ctx context.Context, prefix string, after int64) (<-chan Event, error)

	// Close ends all watches. Calls after it return ErrUnavailable. Closing
	// twice is fine.
	Close() error
}
