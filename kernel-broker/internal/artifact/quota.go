// SPDX-License-Identifier: Apache-2.0

package artifact

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sort"
)

// Used is the size of the cache in bytes; running downloads count in full.
func (c *Cache) Used() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.used()
}

// used needs c.mu.
func (c *Cache) used() int64 {
	var sum int64
	for _, e := range c.entries {
		sum += e.Size
	}
	for _, e := range c.partials {
		sum += e.Size
	}
	for _, size := range c.reserved {
		sum += size
	}
	return sum
}

// reserve makes room for a download and counts it. If that is impossible it removes nothing and returns ErrCacheFull.
func (c *Cache) reserve(digest Digest, size int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	own, hasOwn := c.partials[digest]
	delete(c.partials, digest) // becomes part of the reservation
	need := c.used() + size - c.limit
	victims, freed := c.victims(need)
	if freed < need {
		if hasOwn {
			c.partials[digest] = own
		}
		return fmt.Errorf("%w: %d bytes wanted, limit %d, %d cannot be removed",
			ErrCacheFull, size, c.limit, c.used()-freed)
	}
	for _, v := range victims {
		if err := v.remove(); err != nil {
			if hasOwn {
				c.partials[digest] = own
			}
			return fmt.Errorf("making room: %w", err)
		}
	}
	c.reserved[digest] = size
	return nil
}

// victim is a candidate for removal.
type victim struct {
	entry   Entry
	partial bool
	remove  func() error
}

// victims chooses, in order, until enough bytes are found. It needs c.mu, and
// so do the functions that it returns.
func (c *Cache) victims(need int64) (chosen []victim, freed int64) {
	var all []victim
	for d, e := range c.partials {
		if c.flights[d] == nil {
			all = append(all, victim{e, true, func() error { return c.evictPartial(d) }})
		}
	}
	for d, e := range c.entries {
		if c.flights[d] == nil && c.pins[d] == 0 {
			all = append(all, victim{e, false, func() error { return c.evict(d) }})
		}
	}
	sort.Slice(all, func(i, j int) bool {
		a, b := all[i], all[j]
		switch {
		case a.partial != b.partial:
			return a.partial
		case !a.entry.Used.Equal(b.entry.Used):
			return a.entry.Used.Before(b.entry.Used)
		}
		return a.entry.Digest.hex() < b.entry.Digest.hex()
	})
	for _, v := range all {
		if freed >= need {
			break
		}
		chosen = append(chosen, v)
		freed += v.entry.Size
	}
	return chosen, freed
}

func (c *Cache) evict(digest Digest) error {
	if err := c.dir.Remove(digest); err != nil {
		return err
	}
	c.log.Info("artifact removed to make room", "digest", digest.String(), "size", c.entries[digest].Size)
	delete(c.entries, digest)
	return nil
}

func (c *Cache) evictPartial(digest Digest) error {
	if err := ignoreMissing(os.Remove(c.dir.partialPath(digest))); err != nil {
		return err
	}
	delete(c.partials, digest)
	return nil
}

// settle ends a reservation. An interrupted download then counts with its actual size.
func (c *Cache) settle(digest Digest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.reserved, digest)
	info, err := os.Lstat(c.dir.partialPath(digest))
	switch {
	case err == nil:
		c.partials[digest] = Entry{digest, info.Size(), info.ModTime()}
	case !errors.Is(err, fs.ErrNotExist):
		c.log.Error("broken download is not counted", "digest", digest.String(), "error", err)
	}
}
