// SPDX-License-Identifier: Apache-2.0

package kexec

import (
	"fmt"
	"slices"
	"strings"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/proof"
)

// maxLength is the limit of an x86 kernel without the closing zero.
const maxLength = 2047

// Keep are the parameters that belong to the node.
type Keep kb.Parameters

// productParameters are the product's own parameters, none of which belongs to the node.
var productParameters = kb.Parameters{kb.BeginParameter, kb.TokenParameter, kb.ModulesParameter, kb.SystemCPUsParameter}

// Owns reports whether the argument's parameter belongs to the node. The
// product's never do, whatever is kept.
func (k Keep) Owns(argument string) bool {
	return !productParameters.Has(argument) && kb.Parameters(k).Has(argument)
}

// withoutBuiltIn is the command line without the arguments built into the running kernel. For a line that no agent made, such as
// the boot loader's, they cannot be distinguished.
func withoutBuiltIn(running string) []string {
	arguments := proof.Split(running)
	begin := kb.Parameters{kb.BeginParameter}
	for i, argument := range slices.Backward(arguments) {
		if begin.Has(argument) {
			return arguments[i+1:]
		}
	}
	return arguments
}

// compose makes the next command line out of the running one: the node's own arguments, the profile's, those that the agent
// makes for the kernel, and the broker's one-time token. Arguments that the node does not own are dropped, so an earlier
// profile's argument never survives into the next boot; and a profile may not set what the node owns, so it cannot pass for
// the node's later. Arguments built into a kernel precede the given line and are dropped too. The token is last: a line too
// long for the kernel loses it, and the boot is not proven.
func compose(running string, keep Keep, profile, own []string, token string) (string, error) {
	if err := kb.ValidateArguments(profile); err != nil {
		return "", err
	}
	if err := kb.ValidateToken(token); err != nil {
		return "", err
	}
	next := []string{kb.BeginParameter}
	for _, argument := range withoutBuiltIn(running) {
		// An open quote would swallow everything after it, including the token.
		closed := strings.Count(argument, `"`)%2 == 0
		if closed && keep.Owns(argument) {
			next = append(next, argument)
		}
	}
	for _, argument := range slices.Concat(profile, own) {
		if keep.Owns(argument) {
			return "", fmt.Errorf("kernel argument %q belongs to the node, by boot.keep_arguments of its agent: %w", argument, kb.ErrFailedPrecondition)
		}
		next = append(next, argument)
	}
	line := strings.Join(append(next, kb.TokenParameter+"="+token), " ")
	if len(line) > maxLength {
		return "", fmt.Errorf("kernel command line has %d bytes, at most %d are possible: %w",
			len(line), maxLength, kb.ErrFailedPrecondition)
	}
	return line, nil
}
