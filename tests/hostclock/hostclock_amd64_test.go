// SPDX-License-Identifier: Apache-2.0

package hostclock

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"
)

// The counter keeps the pace that was measured.
func TestMeasured(t *testing.T) {
	khz := measured()
	seen := measure(300 * time.Millisecond)
	if off := math.Abs(seen/float64(khz) - 1); khz == 0 || off > 0.001 {
		t.Errorf("measured %d kHz, then %.0f", khz, seen)
	}
	if got, want := Arguments(), []string{fmt.Sprintf("tsc_early_khz=%d", khz)}; !slices.Equal(got, want) {
		t.Errorf("arguments %q, want %q", got, want)
	}
}
