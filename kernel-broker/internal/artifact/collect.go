// SPDX-License-Identifier: Apache-2.0

package artifact

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"
)

// Stored is a file of a Store and its users.
type Stored struct {
	Entry
	NeededBy []string
	// Partial: an upload that runs or broke off.
	Partial bool
}

// List returns every file of the store, interrupted uploads last, and the total size.
func (s *Store) List(ctx context.Context) ([]Stored, int64, error) {
	needed, err := s.needed(ctx)
	if err != nil {
		return nil, 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	u, err := s.dir.usage(s.running, Digest{})
	if err != nil {
		return nil, 0, err
	}
	all := make([]Stored, 0, len(u.whole)+len(u.partial))
	for _, e := range u.whole {
		all = append(all, Stored{Entry: e, NeededBy: needed[e.Digest]})
	}
	for _, e := range u.partial {
		file := Stored{Entry: e, Partial: true}
		if _, runs := s.running[e.Digest]; runs {
			file.NeededBy = []string{"an upload"}
		}
		all = append(all, file)
	}
	return all, u.bytes, nil
}

func (s *Store) needed(ctx context.Context) (map[Digest][]string, error) {
	if s.o.Needed == nil {
		return nil, errors.New("artifact store: no list of needed artifacts")
	}
	needed, err := s.o.Needed(ctx)
	if err != nil {
		return nil, fmt.Errorf("needed artifacts: %w", err)
	}
	return needed, nil
}

// Collect removes and returns files that nothing needs and that were not requested within the grace period; with dryRun
// it only returns them. If the needed artifacts are unknown, it removes nothing.
//
// It reads them without a lock: clients that are about to need a file call Has first, which protects the file.
func (s *Store) Collect(ctx context.Context, dryRun bool) ([]Stored, error) {
	all, _, err := s.List(ctx)
	if err != nil {
		return nil, err
	}
	var removed []Stored
	for _, file := range garbage(all, s.o.Now(), s.o.Grace) {
		gone := true
		if !dryRun {
			if gone, err = s.remove(file); err != nil {
				return removed, err
			}
		}
		if gone {
			removed = append(removed, file)
		}
	}
	return removed, nil
}

// garbage selects removable files, the longest unused first.
func garbage(all []Stored, now time.Time, grace time.Duration) []Stored {
	var old []Stored
	for _, file := range all {
		if len(file.NeededBy) == 0 && now.Sub(file.Used) > grace {
			old = append(old, file)
		}
	}
	slices.SortStableFunc(old, func(a, b Stored) int { return a.Used.Compare(b.Used) })
	return old
}

// remove deletes a file unless it was requested since the listing.
func (s *Store) remove(file Stored) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	path := s.dir.Path(file.Digest)
	if file.Partial {
		path = s.dir.partialPath(file.Digest)
		if _, runs := s.running[file.Digest]; runs {
			return false, nil
		}
	}
	info, err := os.Lstat(path)
	if err != nil {
		return false, ignoreMissing(err)
	}
	if info.ModTime().After(file.Used) {
		return false, nil
	}
	if err := ignoreMissing(os.Remove(path)); err != nil {
		return false, fmt.Errorf("artifact %s: %w", file.Digest, err)
	}
	s.o.Log.Info("unused artifact removed", "digest", file.Digest.String(), "size", file.Size,
		"partial", file.Partial, "unused_since", file.Used.UTC().Format(time.RFC3339))
	return true, nil
}
