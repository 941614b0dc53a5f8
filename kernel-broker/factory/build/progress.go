// SPDX-License-Identifier: Apache-2.0

package build

import (
	"fmt"
	"io"
	"time"

	"github.com/schollz/progressbar/v3"
)

// plainInterval is how often progress is told where there is no terminal.
const plainInterval = 10 * time.Second

// Progress tells a person how far the work is: a bar on a terminal, plain
// lines elsewhere.
type Progress struct {
	Out      io.Writer
	Terminal bool
	Kernel   string
}

// Say prints one line.
func (p Progress) Say(format string, args ...any) {
	if p.Out == nil {
		return
	}
	// A closed terminal is no reason to stop a build.
	_, _ = fmt.Fprintf(p.Out, "%s: %s\n", p.Kernel, fmt.Sprintf(format, args...))
}

// Waiting returns what to call when another process does the same work.
func (p Progress) Waiting(what string) func() {
	return func() { p.Say("another process is %s: waiting for it", what) }
}

// meter counts compile units.
type meter struct {
	progress Progress
	total    int
	done     int
	started  time.Time
	told     time.Time
	bar      *progressbar.ProgressBar
}

// meter begins to count towards total; 0 when nobody knows the total.
func (p Progress) meter(total int) *meter {
	now := time.Now()
	m := &meter{progress: p, total: total, started: now, told: now}
	if !p.Terminal || p.Out == nil {
		return m
	}
	length := total
	if length == 0 {
		length = -1
	}
	m.bar = progressbar.NewOptions(length,
		progressbar.OptionSetWriter(p.Out),
		progressbar.OptionSetDescription(p.Kernel),
		progressbar.OptionSetItsString("files"),
		progressbar.OptionShowIts(),
		progressbar.OptionShowCount(),
		progressbar.OptionSetPredictTime(true),
		progressbar.OptionThrottle(200*time.Millisecond),
		progressbar.OptionClearOnFinish(),
	)
	return m
}

func (m *meter) add() {
	m.done++
	if m.bar != nil {
		if m.total > 0 && m.done > m.total {
			m.total = m.done
			m.bar.ChangeMax(m.total)
		}
		_ = m.bar.Add(1) // a bar that cannot be drawn stops no build
		return
	}
	if now := time.Now(); now.Sub(m.told) >= plainInterval {
		m.told = now
		m.tell()
	}
}

func (m *meter) tell() {
	if m.total == 0 {
		m.progress.Say("%d files compiled, %s", m.done, time.Since(m.started).Round(time.Second))
		return
	}
	total := max(m.total, m.done)
	m.progress.Say("%d of %d files compiled (%d %%), %s", m.done, total, 100*m.done/total,
		time.Since(m.started).Round(time.Second))
}

func (m *meter) finish() {
	if m.bar != nil {
		_ = m.bar.Finish() // as above
	}
	m.progress.Say("%d files compiled in %s", m.done, time.Since(m.started).Round(time.Second))
}
