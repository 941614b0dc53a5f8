// SPDX-License-Identifier: Apache-2.0

package slim

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// Answer is what became of a kernel with some options off.
type Answer struct {
	Works bool `json:"works"`
	// Stage at which it failed: configuration, build, boot, workload.
	Stage string `json:"stage,omitempty"`
	// Reason in one line, for the record beside the option that stays.
	Reason string `json:"reason,omitempty"`
	// Text is the size of the kernel's code where it was built.
	Text int64 `json:"text,omitempty"`
}

// Ask tries a kernel with the options off. An error means that no answer
// could be had (a full disk, a stop), which blames no option.
type Ask func(ctx context.Context, off []string) (Answer, error)

// Blame is an option that has to stay, and what happened without it.
type Blame struct {
	Symbol string `json:"symbol"`
	Answer Answer `json:"answer"`
	// Beside are how many options were off already: a failure may take two.
	Beside int `json:"beside"`
}

// Found is the end of a search.
type Found struct {
	// Off are the options that can go together. This very set was tried.
	Off []string
	// Blamed have to stay.
	Blamed []Blame
	// Bound stay because of a blamed option that cannot stay without them.
	Bound map[string]string
	// Untried stay because the search was over before their turn.
	Untried []string
	// Calls are the kernels asked for.
	Calls int
	// Last is the answer for Off; without options off nothing was asked.
	Last Answer
}

// ErrBaseline says that the kernel fails with nothing off, so that no option
// can be to blame.
var ErrBaseline = errors.New("the kernel fails with every option still on")

// Search finds the options to blame for a failure by halves. Invariant: the
// options in Off were tried together and work. A failing rest is cut until
// one option makes the difference; it stays, and the search goes on with
// what stands behind it. An option that fails only together with others is
// found the same way: the last of them is blamed.
//
// With n options and k to blame it takes at most 2 + k(2 + log2 n) calls.
// Limit is the most calls it makes, 0 for any number.
func Search(ctx context.Context, off []string, needs map[string][]string, limit int, ask Ask) (Found, error) {
	search := searcher{
		needs: needs, limit: limit, ask: ask,
		found: Found{Bound: map[string]string{}},
	}
	err := search.run(ctx, inOrder(off, needs))
	return search.found, err
}

type searcher struct {
	needs map[string][]string
	limit int
	ask   Ask
	found Found
	works bool // Off was tried, if only as the empty set
}

// errLimit ends a search early; what it has is still good.
var errLimit = errors.New("no more calls")

func (s *searcher) run(ctx context.Context, rest []string) error {
	for len(rest) > 0 {
		answer, err := s.try(ctx, rest)
		if err == nil && answer.Works {
			s.accept(rest, answer)
			return nil
		}
		var works int
		var failure Answer
		if err == nil {
			works, failure, err = s.halve(ctx, rest, answer)
		}
		if errors.Is(err, errLimit) {
			s.found.Untried = rest[works:]
			return nil
		}
		if err != nil {
			return err
		}
		rest = s.blame(rest[works], failure, rest[works+1:])
	}
	return nil
}

// halve finds the first option of rest with which it fails, and accepts all
// before it.
func (s *searcher) halve(ctx context.Context, rest []string, failure Answer) (int, Answer, error) {
	works, fails := 0, len(rest)
	accepted := 0
	for fails-works > 1 {
		middle := (works + fails) / 2
		answer, err := s.try(ctx, rest[accepted:middle])
		if err != nil {
			return works, failure, err
		}
		if answer.Works {
			s.accept(rest[accepted:middle], answer)
			works, accepted = middle, middle
		} else {
			fails, failure = middle, answer
		}
	}
	if s.works {
		return works, failure, nil
	}
	answer, err := s.try(ctx, nil)
	if err == nil && !answer.Works {
		err = fmt.Errorf("%w: %s: %s", ErrBaseline, answer.Stage, answer.Reason)
	}
	if err == nil {
		s.accept(nil, answer)
	}
	return works, failure, err
}

func (s *searcher) try(ctx context.Context, more []string) (Answer, error) {
	if err := ctx.Err(); err != nil {
		return Answer{}, err
	}
	if s.limit > 0 && s.found.Calls >= s.limit {
		return Answer{}, errLimit
	}
	s.found.Calls++
	return s.ask(ctx, slices.Concat(s.found.Off, more))
}

func (s *searcher) accept(more []string, answer Answer) {
	s.found.Off = slices.Concat(s.found.Off, more)
	s.found.Last, s.works = answer, true
}

// blame keeps an option, and all of rest that cannot go without it.
func (s *searcher) blame(symbol string, answer Answer, rest []string) []string {
	s.found.Blamed = append(s.found.Blamed, Blame{Symbol: symbol, Answer: answer, Beside: len(s.found.Off)})
	stays := map[string]bool{symbol: true}
	var left []string
	for _, candidate := range rest {
		need := slices.IndexFunc(s.needs[candidate], func(other string) bool { return stays[other] })
		if need < 0 {
			left = append(left, candidate)
			continue
		}
		stays[candidate] = true
		s.found.Bound[candidate] = s.needs[candidate][need]
	}
	return left
}

// inOrder puts what an option needs before it, and changes as little as it
// can. Options that need each other keep their order.
func inOrder(off []string, needs map[string][]string) []string {
	present := map[string]bool{}
	for _, symbol := range off {
		present[symbol] = true
	}
	var ordered []string
	placed := map[string]bool{}
	var place func(symbol string)
	place = func(symbol string) {
		if placed[symbol] || !present[symbol] {
			return
		}
		placed[symbol] = true
		for _, need := range needs[symbol] {
			place(need)
		}
		ordered = append(ordered, symbol)
	}
	for _, symbol := range off {
		place(symbol)
	}
	return ordered
}
