// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
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
	p := &picture{catalog: c, profiles: map[string]kb.Profile{}, changed: make(chan struct{}, 1)}
	var publishing sync.WaitGroup
	publishing.Go(func() { p.run(ctx, use) })
	err := store.Follow(ctx, c.store, keyPrefix, p)
	cancel()
	publishing.Wait()
	return err
}

// Restricted reports whether some users may not use a profile.
func (c *Catalog) Restricted(profile string) bool {
	return c.restricted != nil && c.restricted(profile)
}

// Republish makes Publish check for changed restrictions.
func (c *Catalog) Republish() {
	select {
	case c.republish <- struct{}{}:
	default:
	}
}

// picture is the store.Follower behind Publish.
type picture struct {
	catalog *Catalog
	changed chan struct{} // holds one token when a publication is due

	mu       sync.Mutex
	profiles map[string]kb.Profile
}

// Reset implements store.Follower.
func (p *picture) Reset(records []store.Record, _ int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.profiles)
	for _, r := range records {
		p.take(r)
	}
	p.wake()
}

// Apply implements store.Follower.
func (p *picture) Apply(event store.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if event.Deleted {
		delete(p.profiles, strings.TrimPrefix(event.Key, keyPrefix))
	} else {
		p.take(event.Record)
	}
	p.wake()
}

// take needs p.mu. An unreadable record hides its profile from submit hosts; other readers report the error to their
// callers.
func (p *picture) take(r store.Record) {
	name := strings.TrimPrefix(r.Key, keyPrefix)
	decoded, err := decode(name, r.Value)
	if err != nil {
		p.catalog.log.Error("profile left out of the snapshot", "profile", name, "error", err)
		delete(p.profiles, name)
		return
	}
	p.profiles[name] = decoded.Profile
}

func (p *picture) wake() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

func (p *picture) snapshot() Snapshot {
	p.mu.Lock()
	defer p.mu.Unlock()
	profiles := make([]kb.Profile, 0, len(p.profiles))
	for _, profile := range p.profiles {
		profiles = append(profiles, profile)
	}
	sort.Slice(profiles, func(i, j int) bool { return profiles[i].Name < profiles[j].Name })
	return NewSnapshot(profiles, p.catalog.restricted, p.catalog.now())
}

// signatures identifies the current signatures: no snapshot contains them, but a change must be published, too.
func (p *picture) signatures() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	sum := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(p.profiles)) {
		for _, v := range p.profiles[name].Versions {
			one := sha256.Sum256(v.Envelope)
			sum.Write(one[:])
		}
	}
	return string(sum.Sum(nil))
}

func (p *picture) run(ctx context.Context, use func(string) error) {
	published, first := "", true
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.changed:
		case <-p.catalog.republish:
		case <-again:
		}
		again = nil
		s := p.snapshot()
		if body := s.body() + p.signatures(); first || body != published {
			if err := use(s.String()); err != nil {
				p.catalog.log.Error("catalog snapshot not published", "error", err)
				again = time.After(publishPause)
				continue
			}
			first, published = false, body
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
