// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	many := make([]Write, MaxWrites+1)
	for i := range many {
		many[i].Key = strings.Repeat("k", i+1)
	}
	for _, c := range []struct {
		name   string
		writes []Write
		want   error
	}{
		{"nothing", nil, nil},
		{"one", []Write{{Key: "a"}}, nil},
		{"unconditional", []Write{{Key: "a", Expect: AnyRevision}}, nil},
		{"largest", []Write{{Key: "a", Value: make([]byte, MaxCommitBytes-1)}}, nil},
		{"a byte too large", []Write{{Key: "ab", Value: make([]byte, MaxCommitBytes-1)}}, ErrTooLarge},
		{"most writes", many[:MaxWrites], nil},
		{"a write too many", many, ErrTooLarge},
		{"empty key", []Write{{Key: "a"}, {}}, ErrInvalid},
		{"same key twice", []Write{{Key: "a"}, {Key: "a", Delete: true}}, ErrInvalid},
		{"negative expectation", []Write{{Key: "a", Expect: -2}}, ErrInvalid},
		{"deletion with a value", []Write{{Key: "a", Delete: true, Value: []byte("x")}}, ErrInvalid},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := Check(c.writes, MostLimits); !errors.Is(err, c.want) {
				t.Errorf("Check = %v, want %v", err, c.want)
			}
		})
	}
}

func TestConflictErrorNamesKeyAndRevisions(t *testing.T) {
	err := error(&ConflictError{Key: "jobs/1", Expect: 7, Have: 0})
	if !errors.Is(err, ErrConflict) || errors.Is(err, ErrNotFound) {
		t.Error("a ConflictError is ErrConflict and nothing else")
	}
	want := `key "jobs/1": revision conflict: expected revision 7, found no key`
	if err.Error() != want {
		t.Errorf("Error() = %q, want %q", err, want)
	}
}
