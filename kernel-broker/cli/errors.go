// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

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
	exitUnreachable
)

// usageError is a mistake on the command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// errUnwell ends a command that has printed everything already.
var errUnwell = errors.New("the broker is not well")

// explain returns the exit code and the message for the user.
func (a *app) explain(err error) (int, string) {
	var usage usageError
	if errors.As(err, &usage) {
		return exitUsage, fmt.Sprintf("%v\nSee kernelctl --help.", usage.error)
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
		return exitUnreachable, fmt.Sprintf("broker at %s cannot be reached: %s", a.address, dialing(plain(made.Message())))
	case codes.DeadlineExceeded:
		return exitUnreachable, fmt.Sprintf("broker at %s did not answer in time", a.address)
	case codes.Canceled:
		return exitFailure, "interrupted"
	case codes.NotFound, codes.FailedPrecondition, codes.InvalidArgument, codes.AlreadyExists, codes.OutOfRange, codes.PermissionDenied:
		return exitRefused, plain(made.Message())
	}
	return exitFailure, plain(made.Message())
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
