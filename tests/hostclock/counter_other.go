// SPDX-License-Identifier: Apache-2.0

//go:build !amd64

package hostclock

// counter is there on x86 alone.
func counter() uint64 { return 0 }
