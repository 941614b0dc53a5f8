// SPDX-License-Identifier: Apache-2.0

package rounded

import (
	"testing"
	"time"
)

func TestTime(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0 s", 300 * time.Microsecond: "<1 ms", 10 * time.Millisecond: "10 ms", 2510 * time.Millisecond: "2.5 s",
		9949 * time.Millisecond: "9.9 s", 9970 * time.Millisecond: "10 s", 24975095931: "25 s", 62510 * time.Millisecond: "63 s",
		2 * time.Minute: "2 min", 125 * time.Second: "2 min 5 s", 59*time.Minute + 59700*time.Millisecond: "60 min",
		90 * time.Minute: "1 h 30 min", 27 * time.Hour: "1 d 3 h", -time.Second: "-1.0 s",
	} {
		if got := Time(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
}
