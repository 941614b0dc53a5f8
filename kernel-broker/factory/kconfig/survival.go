// SPDX-License-Identifier: Apache-2.0

package kconfig

import (
	"fmt"
	"strings"
)

// Lost is an option that was asked for and is not in the configuration that
// kconfig made of it.
type Lost struct {
	Option Option
	// Now is the value it has instead, or "" when the symbol is absent.
	Now string
	// Unmet are the conditions from Kconfig files that do not hold.
	Unmet []string
	// Unknown says that no Kconfig file defines the symbol.
	Unknown bool
}

// LostError names every option that did not survive.
type LostError struct {
	Lost []Lost
}

func (e *LostError) Error() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%d of the options asked for did not survive olddefconfig:", len(e.Lost))
	for _, lost := range e.Lost {
		fmt.Fprintf(&text, "\n  %s: %s", lost.Option.Where(), lost.Option)
		switch {
		case lost.Unknown:
			text.WriteString(": no Kconfig file of this source defines it")
		case lost.Now == "":
			text.WriteString(": absent")
		default:
			fmt.Fprintf(&text, ": is now %s", Line(lost.Option.Symbol, lost.Now))
		}
		for _, condition := range lost.Unmet {
			fmt.Fprintf(&text, "\n      unmet: %s", condition)
		}
	}
	return text.String()
}

// CheckSurvival compares what was asked for with what kconfig left of it. An
// option asked to be off may be absent. Definitions may be nil; with them the
// error says what each lost option depends on.
func CheckSurvival(asked Merged, got Config, definitions *Tree) error {
	var lost []Lost
	for _, option := range asked.Options {
		now := got[option.Symbol]
		if now == option.Value || option.Value == Off && now == "" {
			continue
		}
		loss := Lost{Option: option, Now: now}
		if definitions != nil {
			loss.Unmet = definitions.Unmet(option.Symbol, got)
			loss.Unknown = !definitions.Defines(option.Symbol)
		}
		lost = append(lost, loss)
	}
	if len(lost) == 0 {
		return nil
	}
	return &LostError{Lost: lost}
}

// Outside returns what is lost outside the options of an overlay: those that
// depend on an option which the overlay switches off. It is an error where an
// option of the overlay itself is lost, one has another value, or no file of the
// source defines it.
func (e *LostError) Outside(overlay Fragment) ([]Lost, error) {
	own := map[string]bool{}
	for _, option := range overlay.Options {
		own[option.Symbol] = true
	}
	var taken, wrong []Lost
	for _, lost := range e.Lost {
		if own[lost.Option.Symbol] || lost.Unknown || lost.Now != "" && lost.Now != Off {
			wrong = append(wrong, lost)
		} else {
			taken = append(taken, lost)
		}
	}
	if len(wrong) > 0 {
		return nil, &LostError{Lost: wrong}
	}
	return taken, nil
}
