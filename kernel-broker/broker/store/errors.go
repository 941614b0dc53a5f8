// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"fmt"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

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
	ErrOvertaken = errors.New("lease lost")
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

// Check rejects commits that no store accepts, the same for all implementations of Store.
func Check(writes []Write) error {
	if len(writes) > MaxWrites {
		return fmt.Errorf("%w: %d writes, at most %d", ErrTooLarge, len(writes), MaxWrites)
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
	if size > MaxCommitBytes {
		return fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, size, MaxCommitBytes)
	}
	return nil
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
