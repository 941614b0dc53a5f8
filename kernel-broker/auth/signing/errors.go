// SPDX-License-Identifier: Apache-2.0

package signing

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Why a kernel is refused. Callers tell the reasons apart with errors.Is.
var (
	ErrUnsigned     = errors.New("not signed")
	ErrMalformed    = errors.New("malformed signature envelope")
	ErrUnknownKey   = errors.New("signed by no key that is trusted")
	ErrBadSignature = errors.New("the signature does not fit what is signed")
	ErrKeyPeriod    = errors.New("the key is outside its period")
	ErrKeyProfile   = errors.New("the key may not sign this profile")
	ErrRevoked      = errors.New("revoked")
	ErrOtherCluster = errors.New("signed for another cluster")
	ErrMismatch     = errors.New("not the kernel that was signed")
	ErrExpired      = errors.New("the signature has expired")
	ErrFuture       = errors.New("signed in the future")
	ErrFloor        = errors.New("older than the profile's floor")
)

// MismatchError is ErrMismatch with the field that differs.
type MismatchError struct {
	Field        string
	Signed, Have string
}

func (e *MismatchError) Error() string {
	return fmt.Sprintf("%v: %s is %s, signed is %s", ErrMismatch, e.Field, clip(e.Have), clip(e.Signed))
}

// Is makes errors.Is(err, ErrMismatch) hold.
func (e *MismatchError) Is(target error) bool { return target == ErrMismatch }

func clip(text string) string {
	const most = 120
	if len(text) > most {
		text = text[:most] + "..."
	}
	return fmt.Sprintf("%q", text)
}

func day(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func list(words []string) string { return strings.Join(words, " ") }
