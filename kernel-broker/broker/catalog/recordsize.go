// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
)

// A profile is one record of the store, which limits its size. Kernels and signatures could fill it and leave no space
// for a quarantine. So registering and signing reserve space for everything else: the lifecycle of each version and the
// requests at their maximum, and the history, whose oldest changes are dropped.

// historyBytes is the history's share of a record.
const historyBytes = 64 << 10

// checkRecordSize rejects a change that would use the reserved space of a profile.
func checkRecordSize(before, after kb.Profile) error {
	size, err := maxRecordSize(after)
	if err != nil || size <= store.MaxCommitBytes {
		return err
	}
	// An oversized record from before this limit may shrink.
	if old, err := maxRecordSize(before); err != nil || size <= old {
		return err
	}
	return fmt.Errorf("profile %q is full: %d versions with their signatures, and space reserved for quarantines, retirements and the history, "+
		"need %d bytes, the limit is %d; register the kernel as another profile, or sign with fewer keys: %w",
		after.Name, len(after.Versions), size, store.MaxCommitBytes, kb.ErrFailedPrecondition)
}

// maxRecordSize is the maximum size of a profile's record without further registrations or signatures.
func maxRecordSize(p kb.Profile) (int, error) {
	const nonce = "0123456789abcdef" // like the digest of a request
	// A quotation mark takes two bytes, other printable characters take one.
	reason := strings.Repeat(`"`, kb.MaxReason)
	since := time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
	id := strings.Repeat(`"`, kb.MaxRequestID)

	p.Versions = slices.Clone(p.Versions)
	for i := range p.Versions {
		v := &p.Versions[i]
		v.BootFailures = math.MaxUint32
		v.FailedOn = slices.Repeat([]string{strings.Repeat("n", kb.MaxRequestID)}, maxFailedOn)
		v.Quarantine = &kb.Quarantine{Reason: failedToBoot(math.MaxUint32, reason), Since: since}
		v.Retired = &kb.Retirement{Reason: reason, Since: since}
	}
	p.DefaultVersion = math.MaxUint32
	p.Previous = slices.Repeat([]uint32{math.MaxUint32}, kb.MaxPrevious)
	p.History = nil
	value, err := (&record{
		Profile:  p,
		Requests: slices.Repeat([]request{{ID: id, Digest: nonce}}, maxRequests),
		Failures: slices.Repeat([]string{id}, maxFailures),
		Writes:   slices.Repeat([]string{nonce}, maxWrites),
	}).encode()
	return len(key(p.Name)) + len(value) + historyBytes, err
}

// latest returns the last changes of a history that fit into room bytes.
func latest(history []kb.Change, room int) ([]kb.Change, error) {
	room -= len(`,"history":[]`)
	for i := len(history) - 1; i >= 0; i-- {
		text, err := marshal(history[i])
		if err != nil {
			return nil, err
		}
		if room -= len(text) + len(","); room < 0 {
			return history[i+1:], nil
		}
	}
	return history, nil
}
