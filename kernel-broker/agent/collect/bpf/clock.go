// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Clock is the time by the programs' clock, in nanoseconds.
func Clock() (uint64, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return 0, fmt.Errorf("clock: %w", err)
	}
	return uint64(now.Nano()), nil
}

// ClockAt is a past moment of this process by that clock, whatever became of the host's time since.
func ClockAt(then time.Time) (uint64, error) {
	now, err := Clock()
	return now - uint64(time.Since(then)), err
}
