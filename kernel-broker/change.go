// SPDX-License-Identifier: Apache-2.0

package kernelbroker

import (
	"context"
	"strings"
	"time"
)

// Kinds of changes to a profile.
const (
	ChangeRegistered  = "registered"
	ChangeChanged     = "changed"
	ChangePromoted    = "promoted"
	ChangeRolledBack  = "rolled-back"
	ChangeRetired     = "retired"
	ChangeQuarantined = "quarantined"
	ChangeReleased    = "released"
	ChangeSigned      = "signed"
)

// Change is one entry of a profile's history: who did what, when and why.
type Change struct {
	At   time.Time `json:"at"`
	Who  string    `json:"who"`
	What string    `json:"what"`
	// Version is 0 for the profile as a whole.
	Version uint32 `json:"version,omitempty"`
	Reason  string `json:"reason,omitempty"`
}

// maxHistory bounds a profile's record; the latest changes are kept.
const maxHistory = 256

// Note adds a change to the profile's record.
func (p *Profile) Note(c Change) {
	p.History = append(p.History, c)
	p.History = p.History[max(0, len(p.History)-maxHistory):]
}

// MaxPrevious limits how many steps back a profile remembers.
const MaxPrevious = 16

// SetDefault makes a version the default and remembers the one before it.
func (p *Profile) SetDefault(version uint32) {
	if p.DefaultVersion == version {
		return
	}
	if p.DefaultVersion != 0 {
		p.Previous = append(p.Previous, p.DefaultVersion)
		p.Previous = p.Previous[max(0, len(p.Previous)-MaxPrevious):]
	}
	p.DefaultVersion = version
}

// StepBack restores the previous default, skipping versions that do not count. Without one it changes nothing and
// returns false.
func (p *Profile) StepBack(counts func(ProfileVersion) bool) bool {
	for i := len(p.Previous) - 1; i >= 0; i-- {
		v, err := p.Version(p.Previous[i])
		if err != nil || !counts(v) || p.Previous[i] == p.DefaultVersion {
			continue
		}
		p.DefaultVersion, p.Previous = p.Previous[i], p.Previous[:i]
		return true
	}
	return false
}

// author is the caller and the reason for a change.
type author struct{ who, why string }

type authorKey struct{}

// WithAuthor adds the author and the reason to ctx, for the records.
func WithAuthor(ctx context.Context, who, why string) context.Context {
	return context.WithValue(ctx, authorKey{}, author{OneLine(who), OneLine(why)})
}

// AuthorOf returns what WithAuthor added; empty if the broker itself acts.
func AuthorOf(ctx context.Context) (who, why string) {
	if a, ok := ctx.Value(authorKey{}).(author); ok {
		return a.who, a.why
	}
	return "kernel-broker", ""
}

type dryRunKey struct{}

// WithDryRun has a change in ctx checked and not made.
func WithDryRun(ctx context.Context) context.Context {
	return context.WithValue(ctx, dryRunKey{}, true)
}

// DryRun reports whether a change in ctx is to be checked only.
func DryRun(ctx context.Context) bool { return ctx.Value(dryRunKey{}) != nil }

// MaxReason of a text in a record.
const MaxReason = 200

// OneLine makes a text fit for a line that people and other programs read:
// printable ASCII, short.
func OneLine(text string) string {
	text = strings.Map(func(c rune) rune {
		if c < ' ' || c > '~' {
			return ' '
		}
		return c
	}, text)
	text = strings.Join(strings.Fields(text), " ")
	return strings.TrimRight(text[:min(len(text), MaxReason)], " ") // the cut may leave one
}
