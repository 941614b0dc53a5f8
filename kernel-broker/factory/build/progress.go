// SPDX-License-Identifier: Apache-2.0

package build

import (
	"fmt"
	"io"
	"time"
)

// reportInterval is the time between two lines of progress.
const reportInterval = 10 * time.Second

// Progress prints how far the work is.
type Progress struct {
	Out    io.Writer
	Kernel string
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

// meter reports compiled files.
type meter struct {
	progress          Progress
	started, reported time.Time
}

func (p Progress) meter() *meter {
	return &meter{progress: p, started: time.Now(), reported: time.Now()}
}

// report prints a line now and then, and at the end. The total may be 0.
func (m *meter) report(done, total int, end bool) {
	now := time.Now()
	took := now.Sub(m.started).Round(time.Second)
	switch {
	case end:
		m.progress.Say("%d files compiled in %s", done, took)
	case now.Sub(m.reported) < reportInterval:
		return
	case total == 0:
		m.progress.Say("%d files compiled, %s", done, took)
	default:
		m.progress.Say("%d of %d files compiled (%d %%), %s", done, total, 100*done/total, took)
	}
	m.reported = now
}
