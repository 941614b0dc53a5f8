// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"
)

func TestPrinterWithoutATerminal(t *testing.T) {
	var out bytes.Buffer
	p := &Printer{Out: &out, Every: time.Nanosecond}
	for _, e := range []Event{
		{StepStatus: StepStatus{Name: "a", State: Done, Cached: true}, Finished: 1},
		{StepStatus: StepStatus{Name: "b", State: Running, Log: "/b"}, Finished: 1},
		{StepStatus: StepStatus{Name: "b", State: Running, Done: 10, Total: 40}, Finished: 1},
		{StepStatus: StepStatus{Name: "c", State: Following, Log: "/c"}, Finished: 1},
		{StepStatus: StepStatus{Name: "b", State: Running, Done: 50, Total: 50}, Finished: 1},
		{StepStatus: StepStatus{Name: "b", State: Done}, Took: 90 * time.Second, Finished: 2},
		{StepStatus: StepStatus{Name: "c", State: Done, Shared: true}, Finished: 3},
		{StepStatus: StepStatus{Name: "d", State: Queued, Job: "17"}, Finished: 3},
		{StepStatus: StepStatus{Name: "d", State: Running, Job: "17", Log: "/d"}, Finished: 3},
		{StepStatus: StepStatus{Name: "d", State: Failed}, Took: 3 * time.Second, Err: errors.New("one\ntwo"), Finished: 3},
		{StepStatus: StepStatus{State: Failed}, Took: 25 * time.Minute, Err: errors.New("one\ntwo"), Finished: 3},
	} {
		e.Run, e.Steps = "k", 4
		p.Observe(e)
	}
	want := `k [1/4] a: done before
k [1/4] b: begins (log: /b)
k [1/4] b: 10 of 40 (25 %)
k [1/4] c: another build is at it, following (log: /c)
k [1/4] b: 50 of 50 (100 %), about 0.0 s left
k [2/4] b: done in 1m30s
k [3/4] c: done by another build
k [3/4] d: job 17 waits in Slurm
k [3/4] d: job 17 runs (log: /d)
k [3/4] d: failed after 3.0 s: one
k: failed after 25m: one
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

func TestPrinterOnATerminal(t *testing.T) {
	var out bytes.Buffer
	p := &Printer{Out: &out, Terminal: true}
	p.Observe(Event{StepStatus: StepStatus{Name: "b", State: Running}, Run: "k", Steps: 2})
	p.Observe(Event{StepStatus: StepStatus{Name: "b", State: Running, Done: 10, Total: 40}, Run: "k", Steps: 2})
	time.Sleep(250 * time.Millisecond) // the bar is drawn five times a second
	p.Observe(Event{StepStatus: StepStatus{Name: "b", State: Running, Done: 20, Total: 40}, Run: "k", Steps: 2})
	p.Observe(Event{StepStatus: StepStatus{Name: "b", State: Done}, Run: "k", Finished: 1, Steps: 2})
	if text := out.String(); !strings.Contains(text, "20/40") || !strings.Contains(text, "k [0/2] b") || !strings.Contains(text, "k [1/2] b: done in") {
		t.Errorf("%q", text)
	}
}

func TestTimeLeft(t *testing.T) {
	now := time.Now()
	a := activity{began: now.Add(-time.Minute), first: 100}
	if left, known := a.left(now, 200, 400); !known || left.Round(time.Second) != 2*time.Minute {
		t.Errorf("%v, %v", left, known)
	}
	for _, units := range [][3]int{{5, 5, 9}, {0, 9, 5}} {
		if left, known := (&activity{first: units[0]}).left(now, units[1], units[2]); known {
			t.Errorf("%v: %v left", units, left)
		}
	}
}
