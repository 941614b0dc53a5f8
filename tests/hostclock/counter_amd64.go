// SPDX-License-Identifier: Apache-2.0

package hostclock

// counter reads the time stamp counter.
func counter() uint64
