// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// summaryAfter is when lines say what was left out, if no other line did before: one
// for each of mostSummaries messages, and one for all others.
const (
	summaryAfter  = 10 * time.Second
	mostSummaries = 20
)

// Lines is a handler of log records that writes no more of them than two rates allow:
// of one message, and of all together. A message is a constant text, so what happens
// to ten thousand nodes is one message. What is left out is counted: the next such
// line says how many, or one of its own. Records for debugging are not limited.
type Lines struct {
	slog.Handler
	counted *lineCount
}

// lineCount is shared by the handlers that one was made from.
type lineCount struct {
	inner slog.Handler
	each  *Rates
	all   *rate.Limiter

	mu   sync.Mutex
	left map[string]leftOut // by message
	due  bool               // a summary
}

type leftOut struct {
	lines int
	level slog.Level
}

// NewLines limits what inner writes.
func NewLines(inner slog.Handler, each, all Rate) *Lines {
	return &Lines{inner, &lineCount{inner: inner, each: NewRates(each, DefaultKeep, nil), all: newLimiter(all), left: map[string]leftOut{}}}
}

// Handle implements slog.Handler.
func (l *Lines) Handle(ctx context.Context, r slog.Record) error {
	if r.Level < slog.LevelInfo {
		return l.Handler.Handle(ctx, r)
	}
	left, write := l.counted.take(r.Message, r.Level)
	if !write {
		return nil
	}
	if left > 0 {
		r = r.Clone()
		r.AddAttrs(slog.Int("lines_left_out", left))
	}
	return l.Handler.Handle(ctx, r)
}

// take reports whether a line may be written, and how many like it were not.
func (c *lineCount) take(message string, level slog.Level) (left int, write bool) {
	write = c.each.Take(message) == 0 && c.all.Allow()
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.left[message]
	if write {
		delete(c.left, message)
		return before.lines, true
	}
	if !c.due {
		c.due = true
		time.AfterFunc(summaryAfter, c.summarise)
	}
	c.left[message] = leftOut{before.lines + 1, max(before.level, level)}
	return 0, false
}

// summarise writes how many lines were left out of which no later line told.
func (c *lineCount) summarise() {
	c.mu.Lock()
	left := c.left
	c.left, c.due = map[string]leftOut{}, false
	c.mu.Unlock()
	messages := slices.SortedFunc(maps.Keys(left), func(a, b string) int {
		return cmp.Or(cmp.Compare(left[b].lines, left[a].lines), strings.Compare(a, b))
	})
	others := leftOut{}
	for i, message := range messages {
		if i < mostSummaries {
			c.write(message, left[message])
			continue
		}
		others = leftOut{others.lines + left[message].lines, max(others.level, left[message].level)}
	}
	if others.lines > 0 {
		c.write("others", others)
	}
}

func (c *lineCount) write(message string, left leftOut) {
	ctx := context.Background()
	if !c.inner.Enabled(ctx, left.level) {
		return
	}
	r := slog.NewRecord(time.Now(), left.level, "lines like this left out", 0)
	r.AddAttrs(slog.String("line", message), slog.Int("lines_left_out", left.lines))
	_ = c.inner.Handle(ctx, r) // there is nobody to tell, as with any line
}

// WithAttrs implements slog.Handler.
func (l *Lines) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &Lines{l.Handler.WithAttrs(attrs), l.counted}
}

// WithGroup implements slog.Handler.
func (l *Lines) WithGroup(name string) slog.Handler {
	return &Lines{l.Handler.WithGroup(name), l.counted}
}
