// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// Exit codes, as the help text has them.
const (
	exitOK = iota
	exitFailure
	exitUsage
	exitRefused
	exitUnavailable
)

// usageError is a mistake on the command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// errUnhealthy ends a command that has printed everything already.
var errUnhealthy = errors.New("the broker is not healthy")

// kinds are the words for exit codes in an error's object.
var kinds = map[int]string{exitFailure: "error", exitUsage: "usage", exitRefused: "refused", exitUnavailable: "unavailable"}

// failure is what went wrong, for programs.
type failure struct {
	Kind     string `json:"kind"`
	ExitCode int    `json:"exit_code"`
	Message  string `json:"message"`
	Usage    string `json:"usage,omitempty"`
	Example  string `json:"example,omitempty"`
}

// fail tells an error of a command: a mistake with the command's usage and an example, and for programs as an object.
func (a *app) fail(c *cobra.Command, err error) int {
	code, text := a.explain(err)
	f := failure{Kind: kinds[code], ExitCode: code, Message: text}
	if code == exitUsage {
		f.Usage, f.Example = usageOf(c), exampleOf(c)
	}
	if a.output == outputJSON || a.output == outputYAML {
		out := *a
		out.Stdout = a.Stderr
		if out.showValue(map[string]failure{"error": f}, nil) == nil {
			return code
		}
	}
	if code == exitUsage {
		text += "\nUsage:   " + f.Usage
		if f.Example != "" {
			text += "\nExample: " + f.Example
		}
		text += "\nSee " + c.CommandPath() + " --help."
	}
	_, _ = fmt.Fprintln(a.Stderr, text)
	return code
}

// usageOf is a command's usage line; one that only holds others needs one of them.
func usageOf(c *cobra.Command) string {
	if c.HasAvailableSubCommands() {
		return c.CommandPath() + " COMMAND"
	}
	return c.UseLine()
}

// exampleOf is a command's first example, or that of its first command which has one.
func exampleOf(c *cobra.Command) string {
	first, _, _ := strings.Cut(strings.TrimSpace(c.Example), "\n")
	for _, sub := range c.Commands() {
		if first == "" && sub.IsAvailableCommand() {
			first = exampleOf(sub)
		}
	}
	return first
}

// explain returns the exit code and the message for the user.
func (a *app) explain(err error) (int, string) {
	var usage usageError
	if errors.As(err, &usage) {
		return exitUsage, plain(usage.Error())
	}
	if errors.Is(err, context.Canceled) {
		return exitFailure, "interrupted"
	}
	made, isStatus := status.FromError(err)
	if !isStatus {
		for _, refusal := range []error{kb.ErrInvalid, kb.ErrNotFound, kb.ErrExists, kb.ErrFailedPrecondition, kb.ErrDenied} {
			if errors.Is(err, refusal) {
				return exitRefused, plain(err.Error())
			}
		}
		return exitFailure, plain(err.Error())
	}
	switch made.Code() {
	case codes.Unavailable:
		if answered(err) {
			return exitUnavailable, fmt.Sprintf("the broker at %s cannot do it now: %s", a.address, plain(made.Message()))
		}
		return exitUnavailable, fmt.Sprintf("broker at %s cannot be reached: %s", a.address, dialing(plain(made.Message())))
	case codes.DeadlineExceeded:
		return exitUnavailable, fmt.Sprintf("broker at %s did not answer in time", a.address)
	case codes.Canceled:
		return exitFailure, "interrupted"
	case codes.NotFound, codes.FailedPrecondition, codes.InvalidArgument, codes.AlreadyExists, codes.OutOfRange, codes.PermissionDenied:
		return exitRefused, plain(made.Message())
	}
	return exitFailure, plain(made.Message())
}

// disconnected begins the texts with which gRPC itself says that there is no connection, or no longer.
var disconnected = []string{"connection error", "last connection error", "error reading from server", "transport", "closing transport",
	"name resolver error", "the connection is draining", "the stream is rejected", "keepalive ping failed", "stream terminated"}

// answered reports whether a codes.Unavailable is the broker's answer. It may quote an error of a connection of its own.
func answered(err error) bool {
	var made interface{ GRPCStatus() *status.Status }
	if !errors.As(err, &made) {
		return false
	}
	text := made.GRPCStatus().Message()
	return !slices.ContainsFunc(disconnected, func(begin string) bool { return strings.HasPrefix(text, begin) })
}

// dialing removes gRPC's prefix from the system's error.
func dialing(text string) string {
	if _, cause, ok := strings.Cut(text, "Error while dialing: "); ok {
		return strings.TrimSuffix(cause, `"`)
	}
	return text
}

// plain removes control characters: texts also come from nodes and users.
func plain(text string) string {
	return strings.Map(func(c rune) rune {
		if c < ' ' && c != '\n' && c != '\t' || c == 0x7f || c >= 0x80 && c < 0xa0 {
			return -1
		}
		return c
	}, text)
}
