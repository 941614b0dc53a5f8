// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// tallyAge is how long a failure counts. Slurm reuses job ids, and cancelled jobs leave files behind.
const tallyAge = 7 * 24 * time.Hour

// tally counts runs of a job that failed without a broker. Each is an empty file <job>.<restart>, so no lock is needed,
// a repeated hook counts once, and a killed one leaves a valid count.
type tally struct{ dir string }

// add counts this run and returns the total.
func (t tally) add(j job, now time.Time) (int, error) {
	if err := os.MkdirAll(t.dir, 0o750); err != nil {
		return 0, fmt.Errorf("failures: %w", err)
	}
	t.prune(now)
	file, err := os.OpenFile(t.path(j, strconv.FormatUint(uint64(j.id.Restart), 10)), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o640)
	if err == nil {
		err = file.Close()
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return 0, fmt.Errorf("failures: %w", err)
	}
	found, err := t.of(j)
	return len(found), err
}

// forget ends the count of a job.
func (t tally) forget(j job) error {
	found, err := t.of(j)
	for _, path := range found {
		if gone := os.Remove(path); gone != nil && !errors.Is(gone, fs.ErrNotExist) {
			err = errors.Join(err, gone)
		}
	}
	return err
}

func (t tally) of(j job) ([]string, error) {
	found, err := filepath.Glob(t.path(j, "*"))
	if err != nil {
		return nil, fmt.Errorf("failures: %w", err)
	}
	return found, nil
}

func (t tally) path(j job, run string) string {
	return filepath.Join(t.dir, fmt.Sprintf("%d.%s", j.id.Job, run))
}

// prune removes files older than tallyAge. The next failure retries what it cannot remove.
func (t tally) prune(now time.Time) {
	entries, err := os.ReadDir(t.dir)
	if err != nil {
		return
	}
	for _, entry := range entries {
		var job, restart uint32
		if n, _ := fmt.Sscanf(entry.Name(), "%d.%d", &job, &restart); n != 2 {
			continue // not ours
		}
		if info, err := entry.Info(); err == nil && now.Sub(info.ModTime()) > tallyAge {
			_ = os.Remove(filepath.Join(t.dir, entry.Name()))
		}
	}
}
