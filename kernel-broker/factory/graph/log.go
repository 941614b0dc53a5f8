// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// log is the file that takes what a step says. A step's programs do not see
// write errors, which would end them for the wrong reason; Close returns them.
type log struct {
	mu   sync.Mutex
	file *os.File
	err  error
}

// openLog begins the log of an attempt. It keeps the file, since a reader may
// follow it.
func openLog(path string) (*log, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	return &log{file: file}, nil
}

func (l *log) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		_, l.err = l.file.Write(text)
	}
	return len(text), nil
}

func (l *log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := errors.Join(l.err, l.file.Close()); err != nil {
		return fmt.Errorf("log: %w", err)
	}
	return nil
}

// unitsInterval is how often the file of units is written.
const unitsInterval = 500 * time.Millisecond

// unitsFormat has one width, so that a write replaces the one before.
const unitsFormat = "%10d %10d\n"

// units reports how far a step is: this process through Observe, others through
// a file of one line.
type units struct {
	task    Task
	mu      sync.Mutex
	file    *os.File
	written time.Time
}

func (t Task) newUnits() *units { return &units{task: t} }

func (u *units) report(done, total int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.task.Observe(Update{State: Running, Done: done, Total: total})
	if time.Since(u.written) < unitsInterval && done != total {
		return
	}
	u.written = time.Now()
	if u.file == nil {
		// Followers see no bar when this fails; the work goes on.
		u.file, _ = os.OpenFile(u.task.spot.path("units"), os.O_CREATE|os.O_WRONLY, 0o644)
	}
	if u.file != nil {
		_, _ = u.file.WriteAt(fmt.Appendf(nil, unitsFormat, done, total), 0) // as above
	}
}

func (u *units) Close() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.file == nil {
		return nil
	}
	return errors.Join(u.file.Close(), remove(u.file.Name()))
}

// passUnits passes on how far the process is that works on the task.
func (t Task) passUnits() {
	text, err := os.ReadFile(t.spot.path("units"))
	if err != nil {
		return // nothing is reported yet
	}
	var done, total int
	if n, _ := fmt.Sscan(string(text), &done, &total); n == 2 && done >= 0 && total >= 0 {
		t.Observe(Update{State: Following, Done: done, Total: total})
	}
}
