// SPDX-License-Identifier: Apache-2.0

package artifact

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
)

// usage is what a Dir holds. Files that are being received count with the size that they are to have.
type usage struct {
	whole, partial []Entry
	bytes          int64
}

// usage counts neither an interrupted transfer of except nor, beside the reservation, what there is of it.
func (d *Dir) usage(reserved map[Digest]int64, except Digest) (u usage, err error) {
	if u.whole, err = d.List(); err != nil {
		return u, err
	}
	if u.partial, err = d.listPartials(); err != nil {
		return u, err
	}
	for _, e := range u.whole {
		if _, runs := reserved[e.Digest]; !runs {
			u.bytes += e.Size
		}
	}
	for _, e := range u.partial {
		if _, runs := reserved[e.Digest]; !runs && e.Digest != except {
			u.bytes += e.Size
		}
	}
	for _, size := range reserved {
		if u.bytes > math.MaxInt64-size {
			u.bytes = math.MaxInt64
			return u, nil
		}
		u.bytes += size
	}
	return u, nil
}

// victim is a candidate for removal.
type victim struct {
	Entry
	path string
}

// reserve makes room for a download and counts it. If that is impossible it removes nothing and returns ErrCacheFull.
func (c *Cache) reserve(digest Digest, size int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	u, err := c.dir.usage(c.reserved, digest)
	if err != nil {
		return err
	}
	var victims []victim
	freed, need := int64(0), u.bytes+size-c.limit
	for _, v := range c.victims(u) {
		if freed >= need {
			break
		}
		victims = append(victims, v)
		freed += v.Size
	}
	if freed < need {
		return fmt.Errorf("%w: %d bytes wanted, limit %d, %d cannot be removed", ErrCacheFull, size, c.limit, u.bytes-freed)
	}
	for _, v := range victims {
		if err := ignoreMissing(os.Remove(v.path)); err != nil {
			return fmt.Errorf("making room: %w", err)
		}
		c.log.Info("artifact removed to make room", "digest", v.Digest.String(), "size", v.Size)
	}
	c.reserved[digest] = size
	return nil
}

// victims are what may be removed, in that order: interrupted downloads, and then what was not used for longest. It
// needs c.mu.
func (c *Cache) victims(u usage) (victims []victim) {
	older := func(a, b Entry) int {
		return cmp.Or(a.Used.Compare(b.Used), strings.Compare(a.Digest.hex(), b.Digest.hex()))
	}
	slices.SortFunc(u.partial, older)
	slices.SortFunc(u.whole, older)
	for _, e := range u.partial {
		if c.busy[e.Digest] == nil {
			victims = append(victims, victim{e, c.dir.partialPath(e.Digest)})
		}
	}
	for _, e := range u.whole {
		if c.busy[e.Digest] == nil && c.pins[e.Digest] == 0 {
			victims = append(victims, victim{e, c.dir.Path(e.Digest)})
		}
	}
	return victims
}

// release ends a reservation: what there is of the file counts from now on.
func (c *Cache) release(digest Digest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.reserved, digest)
}
