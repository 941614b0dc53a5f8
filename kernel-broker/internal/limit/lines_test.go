// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// text is a log that a timer writes, too.
type text struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (t *text) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.Write(p)
}

func (t *text) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.String()
}

func (t *text) Reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b.Reset()
}

// linesLog logs into a text at a rate of one line a second, ten at once, and forty of
// all messages.
func linesLog() (log *slog.Logger, into *text) {
	into = &text{}
	inner := slog.NewTextHandler(into, &slog.HandlerOptions{Level: slog.LevelDebug})
	return slog.New(NewLines(inner, Rate{PerSecond: 1, Burst: 10}, Rate{PerSecond: 4, Burst: 40})), into
}

// What happens to ten thousand nodes is a few lines, each line is counted, and
// everything else is still written.
func TestTenThousandLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, text := linesLog()
		for n := range 10_000 {
			log.With("node", fmt.Sprint("n", n)).Info("agent connected")
		}
		if n := strings.Count(text.String(), "agent connected"); n != 10 {
			t.Errorf("%d lines of 10,000 nodes", n)
		}
		log.Error("store is away")
		if !strings.Contains(text.String(), "store is away") {
			t.Error("another line is left out")
		}
		text.Reset()
		time.Sleep(2 * time.Second)
		log.Info("agent connected", "node", "late")
		if !strings.Contains(text.String(), "node=late lines_left_out=9990") {
			t.Errorf("the next line: %s", text)
		}
	})
}

// The count of a flood that is over is told without another such line.
func TestLinesLeftOutAreSummarised(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, text := linesLog()
		for range 50 {
			log.WithGroup("g").Warn("caller refused")
		}
		text.Reset()
		time.Sleep(summaryAfter + time.Second)
		synctest.Wait()
		if got := text.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, `level=WARN msg="lines like this left out" line="caller refused" lines_left_out=40`) {
			t.Errorf("summary: %s", got)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := text.String(); strings.Count(got, "\n") != 1 {
			t.Errorf("a second one: %s", got)
		}
	})
}

// A flood that goes on has a summary in ten seconds and no more, though many of its lines
// tell what was left out before them.
func TestSummariesAreRare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, text := linesLog()
		for range 1000 {
			log.Info("agent connected")
			time.Sleep(100 * time.Millisecond)
		}
		synctest.Wait()
		if n := strings.Count(text.String(), "lines like this left out"); n < 1 || n > 10 {
			t.Errorf("%d summaries in 100 s", n)
		}
	})
}

// Many messages together are bounded, too.
func TestLinesOfManyMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, text := linesLog()
		for n := range 1000 {
			log.Info(fmt.Sprint("message ", n)) //nolint:sloglint // many messages are the point
		}
		if n := strings.Count(text.String(), "\n"); n != 40 {
			t.Errorf("%d lines", n)
		}
		text.Reset()
		time.Sleep(summaryAfter + time.Second)
		synctest.Wait()
		if got := text.String(); strings.Count(got, "\n") != mostSummaries+1 || !strings.Contains(got, "line=others lines_left_out=940") {
			t.Errorf("summary: %s", got)
		}
	})
}

// Who asked for everything gets everything.
func TestDebuggingIsNotLimited(t *testing.T) {
	log, text := linesLog()
	for range 1000 {
		log.Debug("call")
	}
	if n := strings.Count(text.String(), "\n"); n != 1000 {
		t.Errorf("%d lines", n)
	}
}
