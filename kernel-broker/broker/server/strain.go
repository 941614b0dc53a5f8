// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/limit"
)

// Some calls cost others more than their number says. So few of them are under
// way at a time, fewer of one, and the rest wait for their turn; who has waited
// for turnWait is told to come back.
const (
	// Of credentials that munged is asked for. It is Slurm's own: what it spends
	// on the broker's callers, it has not for jobs.
	questions, questionsOfOne = 8, 4
	// Of listings, each of which may be some ten megabytes.
	listings, listingsOfOne = 4, 1

	turnWait = 3 * time.Second
)

// lists are the methods whose answers grow with the site.
var lists = map[string]bool{
	api.AllocationService_ListJobs_FullMethodName:    true,
	api.NodeService_ListNodes_FullMethodName:         true,
	api.RunService_ListRuns_FullMethodName:           true,
	api.TrustService_ListCertificates_FullMethodName: true,
}

// strain bounds what one call after the other would cost others.
type strain struct {
	allowed limit.Rate
	// doubts is for credentials that did not count, by the address that they
	// came from.
	doubts              *limit.Rates
	questions, listings *limit.Turns
}

func newStrain(l Limits) *strain {
	return &strain{allowed: l.Strangers, doubts: limit.NewRates(l.Strangers, limit.DefaultKeep, nil),
		questions: limit.NewTurns(questions, questionsOfOne), listings: limit.NewTurns(listings, listingsOfOne)}
}

// doubt is a credential before it is known whether it counts.
type doubt struct {
	// seen ends the caller's turn. Whose credential counts has given back by then
	// what was taken for it, or others at his address would find nothing left.
	seen func()
	// counted gives back what was taken for it.
	counted func()
}

var noDoubt = doubt{seen: func() {}, counted: func() {}}

// question takes a caller's turn to have his credential looked at, and, as long
// as it is not known to count, one of those that strangers at his address may
// send. An address that is a login node's has so only few in doubt at a time,
// however many users it has: each that counts is given back.
func (s *strain) question(ctx context.Context, caller Caller) (doubt, error) {
	address := hostOf(caller.Address)
	seen, err := turn(ctx, s.questions, address, "credentials", questions, questionsOfOne)
	if err != nil {
		return noDoubt, err
	}
	if wait := s.doubts.Take(address); wait > 0 {
		seen()
		return noDoubt, later(wait, "%s: more than %v credentials a second that did not count, and %d at once", address, s.allowed.PerSecond, s.allowed.Burst)
	}
	return doubt{seen: seen, counted: func() { s.doubts.GiveBack(address) }}, nil
}

// listing takes a caller's turn, if the method is a listing.
func (s *shares) listing(ctx context.Context, method string, caller Caller) (free func(), err error) {
	if !lists[method] || s.exempt(caller) {
		return func() {}, nil
	}
	return turn(ctx, s.strain.listings, caller.holder(), "listings", listings, listingsOfOne)
}

// turn waits for one, not for long and no longer than the call may take.
func turn(ctx context.Context, turns *limit.Turns, who, what string, all, each int) (free func(), err error) {
	waiting, cancel := context.WithTimeout(ctx, turnWait)
	defer cancel()
	free, err = turns.Take(waiting, who)
	switch {
	case err == nil:
		return free, nil
	case ctx.Err() != nil:
		return nil, fmt.Errorf("%s: %d %s at a time, %d of one, and the call's time ended before its turn came: %w", who, all, what, each, ctx.Err())
	}
	return nil, later(time.Second, "%s: %d %s at a time, %d of one, and %v were not enough for the turn to come", who, all, what, each, turnWait)
}

// tooMuch reports whether an error says that a caller takes too much.
func tooMuch(err error) bool {
	var wait *kb.RetryableError
	return errors.As(err, &wait)
}
