// SPDX-License-Identifier: Apache-2.0

// Package cmdline reads the running kernel's command line and makes the next
// one: the node's own arguments, the profile's, and the broker's one-time
// token. What the node does not own is dropped, so an argument of an earlier
// profile never survives into the next boot; and a profile may not set what
// the node owns, so it cannot pass for the node's on the boot after. Nor can
// what is built into a kernel, which stands before the line that it was given;
// the token stands last, so that a line too long for the kernel loses it and
// the boot is not taken for proven.
package cmdline

import (
	"fmt"
	"slices"
	"strings"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// MaxLength is what an x86 kernel takes, less the closing zero.
const MaxLength = 2047

// Split cuts a command line the way the kernel does: at white space outside
// double quotes. What follows "--" belongs to init and is left out.
func Split(line string) []string {
	var arguments []string
	var current strings.Builder
	quoted := false
	flush := func() {
		if current.Len() > 0 {
			arguments = append(arguments, current.String())
			current.Reset()
		}
	}
	for i := range len(line) {
		c := line[i]
		if c == '"' {
			quoted = !quoted
		}
		if !quoted && isSpace(c) {
			flush()
			continue
		}
		current.WriteByte(c)
	}
	flush()
	for i, argument := range arguments {
		if argument == "--" {
			return arguments[:i]
		}
	}
	return arguments
}

func isSpace(c byte) bool {
	return c == ' ' || c >= '\t' && c <= '\r' || c == 0
}

// Value returns the last value of a parameter, as the kernel would use it.
func Value(arguments []string, name string) string {
	value := ""
	for _, argument := range arguments {
		if key, v, has := strings.Cut(argument, "="); has && sameName(key, name) {
			value = strings.Trim(v, `"`)
		}
	}
	return value
}

func sameName(a, b string) bool { return kb.Parameters{a}.Has(b) }

// Keep is what of the command line belongs to the node.
type Keep kb.Parameters

// ours are the product's own, of which none belongs to the node.
var ours = kb.Parameters{kb.BeginParameter, kb.TokenParameter}

// Owns reports whether the argument's parameter belongs to the node. The
// product's never do, whatever is kept.
func (k Keep) Owns(argument string) bool {
	return !ours.Has(argument) && kb.Parameters(k).Has(argument)
}

// given is the command line without what is built into the running kernel. Of a
// line that no agent made, as the boot loader's, that cannot be told.
func given(running string) []string {
	arguments := Split(running)
	begin := kb.Parameters{kb.BeginParameter}
	for i, argument := range slices.Backward(arguments) {
		if begin.Has(argument) {
			return arguments[i+1:]
		}
	}
	return arguments
}

// Compose makes the next command line out of the running one.
func Compose(running string, keep Keep, profile []string, token string) (string, error) {
	if err := kb.ValidateArguments(profile); err != nil {
		return "", err
	}
	if err := kb.ValidateToken(token); err != nil {
		return "", err
	}
	next := []string{kb.BeginParameter}
	for _, argument := range given(running) {
		// An open quote would swallow everything after it, the token too.
		closed := strings.Count(argument, `"`)%2 == 0
		if closed && keep.Owns(argument) {
			next = append(next, argument)
		}
	}
	for _, argument := range profile {
		if keep.Owns(argument) {
			return "", fmt.Errorf("kernel argument %q belongs to the node, by boot.keep_arguments of its agent: %w", argument, kb.ErrFailedPrecondition)
		}
		next = append(next, argument)
	}
	line := strings.Join(append(next, kb.TokenParameter+"="+token), " ")
	if len(line) > MaxLength {
		return "", fmt.Errorf("kernel command line has %d bytes, at most %d are possible: %w",
			len(line), MaxLength, kb.ErrFailedPrecondition)
	}
	return line, nil
}
