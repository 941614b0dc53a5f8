// SPDX-License-Identifier: Apache-2.0

// Package culprit finds the objects with whose profiles a kernel does not boot, by building it with the profiles of fewer
// and fewer of them.
//
// The package decides and does nothing: kernels are built and booted behind Ask.
package culprit

import (
	"context"
	"fmt"
	"math/bits"
	"slices"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// Ask builds the kernel without the profiles of these objects, and returns what is wrong with it, in a line; empty if it
// boots.
type Ask func(ctx context.Context, without []string) (fault string, err error)

// Search is for the culprits among objects.
type Search struct {
	// Objects with a profile.
	Objects []string
	Ask     Ask
	// Say tells of each kernel that was tried; may be nil.
	Say func(t Trial)
}

// Trial is one kernel.
type Trial struct {
	// Number of it, and about how many one culprit takes.
	Number, About int
	// Without is how many objects had no profile.
	Without int
	Fault   string
}

// Outcome of a search.
type Outcome struct {
	// Fault of the kernel with all profiles; empty if it boots.
	Fault string `json:"fault"`
	// Culprits are the objects without whose profiles it boots.
	Culprits []string `json:"culprits"`
	// Kernels that were built.
	Kernels int `json:"kernels"`
}

// most culprits: with more the profile is wrong, and not how an object is compiled.
const most = 5

type search struct {
	Search
	outcome Outcome
}

// Run searches. It is an error if the kernel does not boot without any profile either.
func (s Search) Run(ctx context.Context) (Outcome, error) {
	r := search{Search: s}
	var err error
	if r.outcome.Fault, err = r.try(ctx, nil); err != nil || r.outcome.Fault == "" {
		return r.outcome, err
	}
	fault, err := r.try(ctx, s.Objects)
	if err != nil {
		return r.outcome, err
	}
	if fault != "" {
		return r.outcome, fmt.Errorf("without any profile %s as well: %w", fault, kb.ErrFailedPrecondition)
	}
	return r.outcome, r.narrow(ctx)
}

// narrow finds one culprit after the other. Without those that were found and all that is left the kernel boots; the last
// object of the shortest part of it, without which it still does, is one.
func (r *search) narrow(ctx context.Context) error {
	left := r.Objects
	for len(r.outcome.Culprits) < most {
		bad, good := 0, len(left)
		for good-bad > 1 {
			middle := (bad + good) / 2
			fault, err := r.try(ctx, slices.Concat(r.outcome.Culprits, left[:middle]))
			if err != nil {
				return err
			}
			if fault == "" {
				good = middle
			} else {
				bad = middle
			}
		}
		r.outcome.Culprits = append(r.outcome.Culprits, left[good-1])
		left = left[:good-1]
		if len(left) == 0 {
			return nil
		}
		if fault, err := r.try(ctx, r.outcome.Culprits); err != nil || fault == "" {
			return err
		}
	}
	return fmt.Errorf("it takes more than %d objects: the profile is not this kernel's: %w", most, kb.ErrFailedPrecondition)
}

func (r *search) try(ctx context.Context, without []string) (string, error) {
	fault, err := r.Ask(ctx, without)
	if err != nil {
		return "", err
	}
	r.outcome.Kernels++
	if r.Say != nil {
		// With all, with none, by halves, and without what was found.
		r.Say(Trial{Number: r.outcome.Kernels, About: 3 + bits.Len(uint(len(r.Objects))), Without: len(without), Fault: fault})
	}
	return fault, nil
}
