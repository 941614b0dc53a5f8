// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/plan"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
)

// holdsKey is the record of the holds that are looked after: a few, for seconds.
const holdsKey = "holds"

// heldJob is a hold as it is stored.
type heldJob struct {
	Job  kb.JobID  `json:"job"`
	Hold plan.Hold `json:"hold"`
}

func (r *records) loadHolds(ctx context.Context) (map[kb.JobID]plan.Hold, error) {
	held := map[kb.JobID]plan.Hold{}
	rec, err := r.store.Get(ctx, holdsKey)
	if errors.Is(err, store.ErrNotFound) {
		return held, nil
	}
	if err != nil {
		return nil, fmt.Errorf("record of holds: %w", err)
	}
	var list []heldJob
	if err := json.Unmarshal(rec.Value, &list); err != nil {
		return nil, fmt.Errorf("record of holds: %w", err)
	}
	for _, h := range list {
		held[h.Job] = h.Hold
	}
	return held, nil
}

func (r *records) saveHolds(ctx context.Context, held map[kb.JobID]plan.Hold) error {
	list := []heldJob{}
	for _, id := range slices.SortedFunc(maps.Keys(held), kb.JobID.Compare) {
		list = append(list, heldJob{id, held[id]})
	}
	value, err := json.Marshal(list)
	if err == nil {
		_, err = r.store.Commit(ctx, store.Write{Key: holdsKey, Value: value, Expect: store.AnyRevision})
	}
	if err != nil {
		return fmt.Errorf("record of holds: %w", err)
	}
	return nil
}

// hold holds a job, and looks after that. It is on record before slurmctld is
// told: a broker that is killed in between finds a job that is not held yet, and
// another slurmctld's job is held again.
func (c *Controller) hold(ctx context.Context, id kb.JobID, reference string) error {
	boot, err := c.o.Slurm.StartID(ctx)
	if err != nil {
		c.log.Warn("slurmctld not asked when it started, a hold that it forgets is lost", "job", reference, "error", err)
	}
	c.mu.Lock()
	before, was := c.held[id]
	held := maps.Clone(c.held)
	held[id] = plan.Hold{Since: c.clock.Now(), Boot: boot}
	c.keepHoldsLocked(ctx, held)
	c.mu.Unlock()
	err = c.o.Slurm.Hold(ctx, reference)
	c.mu.Lock()
	defer c.mu.Unlock()
	held = maps.Clone(c.held) // other holds have begun or ended meanwhile
	switch {
	case err == nil:
		held[id] = plan.Hold{Since: c.clock.Now(), Boot: boot}
		c.heldInSlurm[id] = true
		c.wakeLocked(id)
	case was:
		held[id] = before
	default:
		delete(held, id)
	}
	c.keepHoldsLocked(ctx, held)
	return err
}

// keepHoldsLocked takes in which holds are to be looked after further. What is
// stored need not know when each was polled last.
func (c *Controller) keepHoldsLocked(ctx context.Context, held map[kb.JobID]plan.Hold) {
	same := maps.EqualFunc(held, c.held, func(a, b plan.Hold) bool { return a.Boot == b.Boot })
	c.held = held
	maps.DeleteFunc(c.heldInSlurm, func(id kb.JobID, _ bool) bool { _, kept := held[id]; return !kept })
	if same {
		return
	}
	if err := c.records.saveHolds(ctx, held); err != nil {
		c.log.Warn("holds not recorded", "error", err)
	}
}

// loadHolds reads the holds that an earlier broker watched. The watch time starts
// again: nobody polled since.
func (c *Controller) loadHolds(ctx context.Context, now time.Time) error {
	held, err := c.records.loadHolds(ctx)
	if err != nil {
		return err
	}
	for id, h := range held {
		h.Since = now
		held[id] = h
	}
	c.held = held
	return nil
}

// askBoot asks which slurmctld answers, while there are holds to look after. It
// comes after the look: an older name than the view's would take what slurmctld
// forgot for the user's release.
func (c *Controller) askBoot(ctx context.Context) {
	c.mu.Lock()
	asks := len(c.held) > 0
	c.mu.Unlock()
	boot := ""
	if asks {
		var err error
		if boot, err = c.o.Slurm.StartID(ctx); err != nil && ctx.Err() == nil {
			c.log.Warn("slurmctld not asked when it started", "error", err)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.slurmBoot = boot
}
