// SPDX-License-Identifier: Apache-2.0

package munge

import (
	"errors"
	"fmt"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// Why a credential proves nothing. Each is an *Error with munged's text,
// and each is kernelbroker.ErrUnauthenticated too.
var (
	// ErrForged: made with another key, changed, or no credential at all.
	ErrForged = errors.New("credential is not genuine")
	// ErrExpired: genuine, and older than its time to live.
	ErrExpired = errors.New("credential has expired")
	// ErrRewound: genuine, and from further ahead than clocks may differ.
	ErrRewound = errors.New("credential is from the future")
	// ErrReplayed: genuine, and decoded on this host before.
	ErrReplayed = errors.New("credential was used before")
	// ErrNotForUs: genuine, and made for another user to decode.
	ErrNotForUs = errors.New("credential is for another user to decode")

	// ErrProtocol: what answers at the socket does not speak as munged does.
	// It is kernelbroker.ErrUnavailable as well.
	ErrProtocol = fmt.Errorf("munged's answer cannot be understood: %w", kb.ErrUnavailable)
)

// munged's error codes.
var kinds = map[byte]error{
	8: ErrForged, 9: ErrForged, 10: ErrForged, 11: ErrForged, 12: ErrForged, 13: ErrForged, 14: ErrForged,
	15: ErrExpired, 16: ErrRewound, 17: ErrReplayed, 18: ErrNotForUs,
}

// Error is a refusal by munged.
type Error struct {
	Code byte
	Text string
}

func (e *Error) Error() string {
	if kind := kinds[e.Code]; kind != nil {
		return fmt.Sprintf("%v (munged: %s)", kind, e.Text)
	}
	return fmt.Sprintf("munged: error %d: %s", e.Code, e.Text)
}

// Unwrap tells a bad credential from a munged that is not well.
func (e *Error) Unwrap() []error {
	if kind := kinds[e.Code]; kind != nil {
		return []error{kind, kb.ErrUnauthenticated}
	}
	return []error{kb.ErrUnavailable}
}
