// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"fmt"
	"testing"
)

func TestWhatIsLeftOutIsTold(t *testing.T) {
	w := NewWords(Rate{PerSecond: 1, Burst: 1}, 2, newClock().now)
	for range 7 {
		w.LeaveOut("alice")
	}
	if left, say := w.Say("alice"); !say || left != 7 {
		t.Errorf("%v, %d left out", say, left)
	}
	for n := range 100 {
		w.LeaveOut(fmt.Sprint("stranger ", n))
	}
	if len(w.left) > 2 {
		t.Errorf("%d are kept", len(w.left))
	}
}
