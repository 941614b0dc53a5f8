// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

func busy(t *testing.T, code codes.Code, wait time.Duration) error {
	t.Helper()
	s, err := status.New(code, "too many").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(wait)})
	if err != nil {
		t.Fatal(err)
	}
	return s.Err()
}

func TestRetryAfter(t *testing.T) {
	if wait, said := RetryAfter(busy(t, codes.ResourceExhausted, time.Second)); !said || wait != time.Second {
		t.Errorf("%v, %v", wait, said)
	}
	if wait, said := RetryAfter(busy(t, codes.ResourceExhausted, -time.Second)); !said || wait != 0 {
		t.Errorf("a time in the past: %v, %v", wait, said)
	}
	for _, err := range []error{nil, errors.New("x"), status.Error(codes.ResourceExhausted, "the store is full"), busy(t, codes.Unavailable, time.Second)} {
		if wait, said := RetryAfter(err); said {
			t.Errorf("%v: %v", err, wait)
		}
	}
}

// calls counts calls and answers from a list, repeating its last answer.
func calls(n *int, answers ...error) grpc.UnaryInvoker {
	return func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
		*n++
		return answers[min(*n, len(answers))-1]
	}
}

func TestComeBack(t *testing.T) {
	soon, late := busy(t, codes.ResourceExhausted, time.Millisecond), busy(t, codes.ResourceExhausted, time.Hour)
	full := status.Error(codes.ResourceExhausted, "the store is full")
	for name, c := range map[string]struct {
		answers []error
		want    error
		calls   int
	}{
		"served the third time":          {[]error{soon, soon, nil}, nil, 3},
		"a limited number of times":      {[]error{soon}, soon, maxRetries + 1},
		"no time for it":                 {[]error{late}, late, 1},
		"without a wait from the broker": {[]error{full}, full, 1},
		"another error":                  {[]error{soon, full}, full, 2},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		n := 0
		if err := retry(ctx, "/x/Y", nil, nil, nil, calls(&n, c.answers...)); !errors.Is(err, c.want) || n != c.calls {
			t.Errorf("%s: %v after %d calls, want %v after %d", name, err, n, c.want, c.calls)
		}
		cancel()
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	n := 0
	if err := retry(ctx, "/x/Y", nil, nil, nil, calls(&n, late)); !errors.Is(err, late) || n != 1 {
		t.Errorf("interrupted: %v after %d calls", err, n)
	}
}
