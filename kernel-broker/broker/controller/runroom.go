// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"math"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// fileBytes is what a run's files take in the store of artifacts.
func fileBytes(r *kb.Run) int64 {
	sum := uint64(0)
	for _, n := range r.Nodes {
		for _, f := range n.Files {
			sum += f.Size
		}
	}
	return int64(min(sum, math.MaxInt64))
}

// MakeRoom forgets runs that are over until what nodes are to store, so many bytes, fits into the runs' part of the store of
// artifacts: first the oldest of the user whose runs have most there. Kernels have the rest to themselves.
func (c *Controller) MakeRoom(ctx context.Context, bytes uint64) error {
	if c.o.RunRoom == nil {
		return nil
	}
	room, err := c.o.RunRoom()
	if err != nil {
		return fmt.Errorf("results of runs: %w: %w", kb.ErrUnavailable, err)
	}
	most := int64(min(room, math.MaxInt64)) - int64(min(bytes, math.MaxInt64))
	if _, open := c.records.runIndex.Held(); open <= most { // else it would be for nothing
		if err := c.pruneRuns(ctx, max(most, 1)); err != nil {
			return fmt.Errorf("results of runs: %w: %w", kb.ErrUnavailable, err)
		}
	}
	if held, open := c.records.runIndex.Held(); held > most {
		return fmt.Errorf("results of runs may take %d bytes, half of what the store has room for (artifacts.max_bytes of broker.yaml): runs that are not over have %d, and nodes are to store %d more: %w",
			room, open, bytes, kb.ErrExhausted)
	}
	return nil
}

// pruneRuns forgets what is more than runs.keep, or than so many bytes; 0: any number. Nothing needs their files any more.
func (c *Controller) pruneRuns(ctx context.Context, mostBytes int64) error {
	c.pruning.Lock()
	defer c.pruning.Unlock()
	forgotten, err := runKind.Forget(ctx, c.records.store, &c.records.runIndex, c.records.runIndex.Exceeding(max(c.o.Runs.Keep, 1), mostBytes))
	for _, r := range forgotten {
		c.log.Info("profiling run forgotten", "run", r.ID, "job", r.Job.String(), "user", r.User, "bytes", fileBytes(r))
		c.releaseFiles(r)
	}
	return err
}

func (c *Controller) releaseFiles(r *kb.Run) {
	if c.o.ReleaseArtifact == nil {
		return
	}
	for _, n := range r.Nodes {
		for _, f := range n.Files {
			if err := c.o.ReleaseArtifact(f.Digest); err != nil {
				c.log.Warn("file of a forgotten run stays for artifacts.grace", "run", r.ID, "node", n.Name, "file", f.Name, "error", err)
			}
		}
	}
}
