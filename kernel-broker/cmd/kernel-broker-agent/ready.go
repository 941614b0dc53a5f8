// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/local"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/artifact"
)

// Checking an image's digest takes much of a switch's time before the boot. So an idle node on stock keeps a checked,
// sealed copy of the previous kernel: users repeat their applications.
const (
	// readyLimit bounds the memory of the copies, in bytes.
	readyLimit = 64 << 20
	// readyPause is the interval between checks whether the node is idle.
	readyPause = 3 * time.Second
	// sameUse is within which the files of one kernel are used.
	sameUse = 2 * time.Second
)

// ready holds the copies, each for one load.
type ready struct {
	mu     sync.Mutex
	copies map[string]*os.File
}

func (r *ready) put(digest string, file *os.File) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.copies == nil {
		r.copies = map[string]*os.File{}
	}
	r.copies[digest] = file
}

// take returns a copy of exactly that size, if there is one.
func (r *ready) take(digest string, size uint64) *os.File {
	r.mu.Lock()
	defer r.mu.Unlock()
	file := r.copies[digest]
	if file == nil {
		return nil
	}
	if info, err := file.Stat(); err != nil || uint64(info.Size()) != size {
		return nil
	}
	delete(r.copies, digest)
	return file
}

// Prepare copies the artifacts used before the current ones.
func (a *artifacts) Prepare(ctx context.Context) error {
	entries, err := a.cache.List()
	if err != nil {
		return err
	}
	for _, e := range before(entries) {
		file, err := a.Sealed(ctx, e.Digest.String(), uint64(e.Size))
		if err != nil {
			return err
		}
		a.ready.put(e.Digest.String(), file)
	}
	return nil
}

// before selects the artifacts of the last use but one, within the size limit.
func before(entries []artifact.Entry) (list []artifact.Entry) {
	entries = slices.Clone(entries)
	slices.SortFunc(entries, func(x, y artifact.Entry) int { return y.Used.Compare(x.Used) })
	room := int64(readyLimit)
	var last time.Time
	for _, e := range entries {
		switch {
		case entries[0].Used.Sub(e.Used) <= sameUse:
			continue // in use
		case last.IsZero():
			last = e.Used
		case last.Sub(e.Used) > sameUse:
			return list
		}
		if e.Size <= room {
			room -= e.Size
			list = append(list, e)
		}
	}
	return list
}

// prepareWhenIdle prepares once in a boot, when the node is on stock, its slurmd
// runs and no switch is under way. On another kernel a job has the node.
func prepareWhenIdle(ctx context.Context, a *artifacts, status func() local.NodeStatus, log *slog.Logger) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(readyPause):
		}
		s := status()
		switch {
		case s.Attested && s.Profile != kb.StockProfile:
			return
		case !s.Attested || !s.SlurmdRunning || len(s.Jobs) > 0 || s.SwitchTo != "":
			continue
		}
		if err := a.Prepare(ctx); err != nil && !errors.Is(err, context.Canceled) {
			log.Warn("no copy of the last kernel is kept ready", "error", err)
		}
		return
	}
}
