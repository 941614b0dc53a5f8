// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"context"
	"crypto/sha256"
	"fmt"
	"sync"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/atomicfile"
)

// publishPause is how soon a snapshot that could not be written is tried again.
const publishPause = 2 * time.Second

// Snapshot returns the snapshot text of the catalog as it is now.
func (c *Catalog) Snapshot(ctx context.Context) (string, error) {
	profiles, err := c.List(ctx)
	if err != nil {
		return "", err
	}
	return NewSnapshot(profiles, c.restricted, c.now()).String(), nil
}

// Publish calls use with the snapshot text at the start and after each change of the catalog, until ctx ends or the
// store cannot be followed, and returns that error. Changes during a call of use are combined. If use fails, Publish
// logs the error and calls it again after a pause with the newest text.
func (c *Catalog) Publish(ctx context.Context, use func(text string) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var publishing sync.WaitGroup
	publishing.Go(func() { c.publish(ctx, use) })
	err := store.Follow(ctx, c.store, keyPrefix, func([]store.Record, int64) { c.Republish() }, func(store.Event) { c.Republish() })
	cancel()
	publishing.Wait()
	return err
}

// Restricted reports whether some users may not use a profile.
func (c *Catalog) Restricted(profile string) bool {
	return c.restricted != nil && c.restricted(profile)
}

// Republish makes Publish check for changes, also of restrictions.
func (c *Catalog) Republish() {
	select {
	case c.republish <- struct{}{}:
	default:
	}
}

func (c *Catalog) publish(ctx context.Context, use func(string) error) {
	published := ""
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.republish:
		case <-again:
		}
		again = nil
		profiles, err := c.List(ctx)
		s := NewSnapshot(profiles, c.restricted, c.now())
		// No snapshot contains the signatures, but a change must be published, too.
		body := sha256.New()
		fmt.Fprintf(body, "%q", s.body())
		for _, p := range profiles {
			for _, v := range p.Versions {
				fmt.Fprintf(body, "%q", v.Envelope)
			}
		}
		if sum := string(body.Sum(nil)); err == nil && sum != published {
			if err = use(s.String()); err == nil {
				published = sum
			}
		}
		if err != nil && ctx.Err() == nil {
			c.log.Error("catalog snapshot not published", "error", err)
			again = time.After(publishPause)
		}
	}
}

// WriteSnapshot puts a snapshot's text at path. It is made for Publish.
func WriteSnapshot(path, text string) error {
	if err := atomicfile.Write(path, []byte(text), 0o644); err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	return nil
}
