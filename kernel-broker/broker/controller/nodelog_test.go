// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// lines of the log that have a part.
func (l *logText) lines(part string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.text.String()) {
		if strings.Contains(line, part) {
			found = append(found, line)
		}
	}
	return found
}

var leftOut = regexp.MustCompile(`left_out=(\d+)`)

// leftOutOf adds up what lines say was left out before them.
func leftOutOf(t *testing.T, lines []string) (sum int) {
	t.Helper()
	for _, line := range lines {
		if found := leftOut.FindStringSubmatch(line); found != nil {
			n, err := strconv.Atoi(found[1])
			if err != nil {
				t.Fatal(err)
			}
			sum += n
		}
	}
	return sum
}

// besides are lines that are no words of a node's.
func besides(lines []string) (n int) {
	for _, line := range lines {
		if !strings.Contains(line, `msg="agent reports`) {
			n++
		}
	}
	return n
}

// A node that says something without end, be it the same or not, leaves a few
// lines; what was left out is told, and another node's words are all there.
func TestLinesOfOneNode(t *testing.T) {
	const (
		all   = 3000
		pause = 20 * time.Millisecond // a node's pace
	)
	text := strings.Repeat("x", 1024)
	most := linesRate.Burst + int(linesRate.PerSecond*(all*pause).Seconds()) + 1
	for name, c := range map[string]struct {
		part string
		most int
		say  func(s *Session, i int)
	}{
		"one report": {`msg="agent reports"`, 1, func(s *Session, _ int) {
			s.Report(kb.SwitchReport{Generation: 99, Progress: kb.ProgressLoading, Detail: text})
		}},
		"one report in other words": {`msg="agent reports"`, 1, func(s *Session, i int) {
			s.Report(kb.SwitchReport{Generation: 99, Progress: kb.ProgressLoading, Detail: fmt.Sprint(text, i)})
		}},
		"reports": {`msg="agent reports"`, most, func(s *Session, i int) {
			s.Report(kb.SwitchReport{Generation: uint64(i + 1), Progress: kb.ProgressLoading, Detail: text})
		}},
		"one word on slurmd": {`msg="agent reports slurmd"`, 1, func(s *Session, _ int) { s.Slurmd(kb.SlurmdReport{Running: true, Detail: text}) }},
		"words on slurmd":    {`msg="agent reports slurmd"`, most, func(s *Session, i int) { s.Slurmd(kb.SlurmdReport{Running: i%2 == 0, Detail: text}) }},
		"runs that there are not": {`msg="agent reports on a run"`, most, func(s *Session, i int) {
			s.RunReport(uint64(i+1), kb.RunReport{State: kb.RunNodeLooking, Reason: text}, nil)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(p *paced) {
				one, other := p.attach("n1", kb.StockProfile, "", bootOne), p.attach("n2", kb.StockProfile, "", bootTwo)
				for i := range all {
					if c.say(one.Session, i); i%1000 == 999 {
						other.Report(kb.SwitchReport{Generation: uint64(i), Progress: kb.ProgressLoaded, Detail: "of another"})
					}
					time.Sleep(pause)
				}
				if lines := p.log.lines(`detail="of another"`); len(lines) != all/1000 || leftOutOf(t, lines) != 0 {
					t.Errorf("another node: %q", lines)
				}
				if lines := p.log.lines(c.part + " node=n1"); len(lines) > c.most || len(lines) == 0 {
					t.Errorf("%d lines of %d messages, more than %d", len(lines), all, c.most)
				}
				// When it comes to its senses, what was left out is told.
				time.Sleep(time.Minute)
				one.Report(kb.SwitchReport{Generation: 1 << 20, Progress: kb.ProgressLoaded})
				news := all
				if c.most == 1 {
					news = 1 // and repeated
				}
				if lines := p.log.lines(" node=n1 "); len(lines)+leftOutOf(t, lines) != news+1+besides(lines) {
					t.Errorf("%d lines, and %d left out, of %d messages", len(lines), leftOutOf(t, lines), news+1)
				}
				one.Detach()
				other.Detach()
			})
		})
	}
}

// Nor do streams that come and go without end fill the log.
func TestLinesOfStreams(t *testing.T) {
	const streams = 500
	inBubble(t, func(p *paced) {
		hello := func() *Session {
			k := simKernel(kb.StockProfile)
			s, err := p.c.Attach("n1", kb.Boot{BootID: bootOne, BuildID: k.BuildID, Release: k.Release}, large(1), true)
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		for range streams {
			hello().Detach()
			time.Sleep(time.Second)
		}
		both := func() []string { return append(p.log.lines("agent connected"), p.log.lines("agent gone")...) }
		if lines := both(); len(lines) > linesRate.Burst+int(linesRate.PerSecond*streams)+1 {
			t.Errorf("%d lines of %d streams", len(lines), streams)
		}
		time.Sleep(time.Minute)
		hello().Detach()
		if lines := both(); len(lines)+leftOutOf(t, lines) != 2*(streams+1) {
			t.Errorf("%d lines, and %d left out, of %d streams", len(lines), leftOutOf(t, lines), streams+1)
		}
	})
}

// An operator sees every step of switches that follow each other at once.
func TestEveryStepOfASwitchIsInTheLog(t *testing.T) {
	inBubble(t, func(p *paced) {
		steps := []kb.Progress{kb.ProgressLoading, kb.ProgressLoaded, kb.ProgressBooting}
		const switches = 2 // to a job's kernel, and back
		for i := range switches {
			agent := p.attach("n1", kb.StockProfile, "", fmt.Sprint(bootOne[:len(bootOne)-1], i))
			agent.Slurmd(kb.SlurmdReport{Start: uint64(i)})
			agent.Slurmd(kb.SlurmdReport{Start: uint64(i), Running: true})
			for _, run := range []kb.RunNodeState{kb.RunNodeLooking, kb.RunNodeDelivered} {
				agent.RunReport(1, kb.RunReport{State: run}, nil)
			}
			for _, state := range steps {
				agent.Report(kb.SwitchReport{Generation: uint64(i + 1), Progress: state})
			}
			agent.Detach()
		}
		for part, want := range map[string]int{
			`msg="agent connected" node=n1`: 1, `msg="agent gone" node=n1`: 1, `msg="agent reports" node=n1`: len(steps),
			`msg="agent reports slurmd" node=n1`: 2, `msg="agent reports on a run" node=n1`: 2, "left_out": 0,
		} {
			if lines := p.log.lines(part); len(lines) != switches*want {
				t.Errorf("%s: %d lines, want %d", part, len(lines), switches*want)
			}
		}
	})
}
