// SPDX-License-Identifier: Apache-2.0

// Package store is what the broker needs of a durable store, and no more: keys
// with values, changed all or nothing, fenced by revision, and watched in
// order.
//
// The idea is fencing. Every change of the store has a revision, a number that
// only grows. A writer says which revision of a key it has seen, and the
// commit is refused when somebody else changed that key since. So a broker
// that was stopped, forgotten and woken up again cannot write over what its
// successor decided, and no lock has to be held or to expire.
//
// The package imports only the standard library. Implementations are its
// subpackages; storetest holds the suite that each of them passes.
package store

import "context"

// AnyRevision as Write.Expect makes that write unconditional.
const AnyRevision int64 = -1

// Limits of one commit. They are below the defaults of an etcd server, so that
// a commit which one implementation takes is taken by all.
const (
	MaxWrites      = 128
	MaxCommitBytes = 1 << 20 // keys and values together
)

// MaxRange is how many records one Range may return.
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
	Delete bool // remove the key; removing what is not there changes nothing
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

// Store is a namespace of keys. All methods may be called concurrently. Keys
// are relative to the namespace, which is chosen where the store is opened.
// Values that go in and out are copies: neither side sees the other's changes.
//
// Revisions come from the whole server, so in one namespace they grow but may
// skip numbers. The first revision that a write can have is 2.
type Store interface {
	// Get returns the newest committed state of a key, or ErrNotFound.
	Get(ctx context.Context, key string) (Record, error)

	// List returns every record whose key begins with prefix, sorted by key,
	// as one consistent snapshot, and the revision of that snapshot: a Watch
	// after it misses nothing and repeats nothing.
	List(ctx context.Context, prefix string) (records []Record, at int64, err error)

	// Range returns the records from the key from on and before the key before,
	// sorted by key and no more than limit of them, as one consistent snapshot.
	// It costs what it returns, however much the store holds. That is why there
	// is no Range from the end backwards: etcd reads all between the two keys
	// for it, values too, and drops what is too much afterwards. Who wants the
	// newest has to know where they begin.
	//
	// ErrInvalid: nothing can be between the two, or the limit is not within 1
	// to MaxRange.
	Range(ctx context.Context, from, before string, limit int) ([]Record, error)

	// Commit applies all writes or none and returns the revision that they
	// share. A commit that changes nothing (no writes, or only deletions of
	// what is not there) returns the current revision.
	//
	// Errors: *ConflictError (is ErrConflict) names the first key, in the
	// order of the writes, whose expectation did not hold; nothing was
	// applied. ErrInvalid and ErrTooLarge: refused before anything was
	// applied. ErrFull: the server takes no more data; nothing was applied.
	// ErrUnavailable: no answer in time, and the outcome is UNKNOWN, it may
	// even be applied after this returns. The caller finds out by reading the
	// keys again; a repeated fenced commit is safe, since it conflicts if the
	// first one was applied.
	Commit(ctx context.Context, writes ...Write) (int64, error)

	// Watch sends every change under prefix with a revision greater than
	// after, in the order of revisions; changes of one commit come next to
	// each other, in no particular order. The channel is closed when ctx ends
	// or the store is closed. A slow reader loses nothing, it only costs
	// memory.
	//
	// ErrCompacted: the history after that revision is not kept any more, or
	// the revision is newer than the store itself (a restored backup). The
	// caller lists again and watches from there; Follow does so. When history
	// is lost under a running watch (it was cut off for longer than history
	// is kept) the channel is closed although ctx is alive, and the same
	// holds.
	Watch(ctx context.Context, prefix string, after int64) (<-chan Event, error)

	// Close ends all watches. Calls after it return ErrUnavailable. Closing
	// twice is fine.
	Close() error
}
