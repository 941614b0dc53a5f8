// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/plan"
)

// checkImage has an image read that a node could not be brought to stock with.
// What is wrong with it is the catalog's fault and no node's: it is said once.
func (c *Controller) checkImage(ctx context.Context, digest string) error {
	if c.o.CheckArtifact == nil {
		return nil
	}
	err := c.o.CheckArtifact(ctx, digest)
	wrong := errors.Is(err, kb.ErrInvalid) || errors.Is(err, kb.ErrNotFound)
	if err != nil && !wrong {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	_, known := c.damaged[digest]
	switch {
	case wrong && !known:
		c.checked = c.clock.Now()
		c.damaged[digest] = "its image is damaged in the broker's store"
		c.log.Error("an image of stock is damaged in the broker's store, upload it again", "digest", digest, "error", err)
	case err == nil && known:
		delete(c.damaged, digest)
		c.log.Info("an image of stock is whole again", "digest", digest)
	}
	c.markAllLocked()
	return nil
}

// checkEvery is how often a damaged image is checked until it is whole.
const checkEvery = 30 * time.Second

// damagedLocked has the images that were damaged checked from time to time.
func (c *Controller) damagedLocked(now time.Time) (checks []plan.Action) {
	if len(c.damaged) == 0 || now.Sub(c.checked) < checkEvery {
		return nil
	}
	c.checked = now
	for _, digest := range slices.Sorted(maps.Keys(c.damaged)) {
		checks = append(checks, plan.Action{Kind: plan.CheckImage, Text: digest})
	}
	return checks
}

// ImageHealth says whether an image that nodes need for their return is damaged.
func (c *Controller) ImageHealth(context.Context) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.damaged) == 0 {
		return "no image is known to be damaged", nil
	}
	return "", fmt.Errorf("damaged or lost, to be uploaded again: %s: %w",
		strings.Join(slices.Sorted(maps.Keys(c.damaged)), ", "), kb.ErrUnavailable)
}
