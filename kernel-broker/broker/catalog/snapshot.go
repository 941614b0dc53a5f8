// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/atomicfile"
)

const (
	snapshotHeader = "kernel-broker-snapshot 1"
	snapshotEnd    = "end"
	available      = "available"
	quarantineWord = "quarantined"
)

// Snapshot is the catalog for submit hosts: enough to recognise a typing error, too little to run anything.
type Snapshot struct {
	Generated time.Time
	Profiles  []SnapshotProfile
}

// SnapshotProfile is one line of a Snapshot.
type SnapshotProfile struct {
	Name           string
	DefaultVersion uint32
	Versions       []uint32
	// Quarantined: some version is quarantined, or the profile is restricted. A snapshot can only permit, so for such a
	// profile a submit host asks the broker. The file says "quarantined" for both, which every plugin understands.
	Quarantined bool
}

// NewSnapshot builds the snapshot of profiles; restricted may be nil.
func NewSnapshot(profiles []kb.Profile, restricted func(profile string) bool, now time.Time) Snapshot {
	s := Snapshot{Generated: now.UTC().Truncate(time.Second)}
	for _, p := range profiles {
		// Retired profiles are left out. A submit host asks the broker about unknown names, which answers with the
		// reason.
		if p.Retired() {
			continue
		}
		line := SnapshotProfile{Name: p.Name, DefaultVersion: p.DefaultVersion, Quarantined: restricted != nil && restricted(p.Name)}
		for _, v := range p.Versions {
			if v.Retired != nil {
				continue
			}
			line.Versions = append(line.Versions, v.Kernel.Version)
			line.Quarantined = line.Quarantined || v.Quarantine != nil
		}
		s.Profiles = append(s.Profiles, line)
	}
	return s
}

// String is the text of the snapshot file.
func (s Snapshot) String() string {
	return snapshotHeader + "\n" +
		"generated " + s.Generated.UTC().Format(time.RFC3339) + "\n" +
		s.body() + snapshotEnd + "\n"
}

// body is the part that changes only with the catalog.
func (s Snapshot) body() string {
	var text strings.Builder
	for _, p := range s.Profiles {
		versions := make([]string, len(p.Versions))
		for i, v := range p.Versions {
			versions[i] = strconv.FormatUint(uint64(v), 10)
		}
		state := available
		if p.Quarantined {
			state = quarantineWord
		}
		fmt.Fprintf(&text, "profile %s %d %s %s\n", p.Name, p.DefaultVersion, strings.Join(versions, ","), state)
	}
	return text.String()
}

// CheckSnapshot refuses what is no whole snapshot.
func CheckSnapshot(text string) error {
	if !strings.HasPrefix(text, snapshotHeader+"\n") || !strings.HasSuffix(text, "\n"+snapshotEnd+"\n") {
		return fmt.Errorf("what it sent is no snapshot of a catalog: %w", kb.ErrInvalid)
	}
	return nil
}

// SnapshotBody is a snapshot's text without the line of its time.
func SnapshotBody(text string) string {
	var kept strings.Builder
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "generated ") {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

// publishPause is how soon a snapshot that could not be written is tried again.
const publishPause = 2 * time.Second

// Snapshot returns the newest snapshot text of Publish. Anyone may ask for it, so the store is read only while there is
// none.
func (c *Catalog) Snapshot(ctx context.Context) (string, error) {
	if text := c.snapshot.Load(); text != nil {
		return *text, nil
	}
	profiles, err := c.List(ctx)
	if err != nil {
		return "", err
	}
	return NewSnapshot(profiles, c.o.Restricted, c.o.Now()).String(), nil
}

// Restricted reports whether some users may not use a profile.
func (c *Catalog) Restricted(profile string) bool {
	return c.o.Restricted != nil && c.o.Restricted(profile)
}

// Republish makes Publish check for changes, also of restrictions.
func (c *Catalog) Republish() {
	select {
	case c.republish <- struct{}{}:
	default:
	}
}

// Publish calls use with the snapshot text at the start and after each change by this catalog, also of what the text does
// not have, until ctx ends, and returns ctx's error. Changes during a call of use are combined. If use fails, Publish
// logs the error and calls it again after a pause with the newest text.
func (c *Catalog) Publish(ctx context.Context, use func(text string) error) error {
	c.Republish()
	published := ""
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-c.republish:
		case <-again:
		}
		again = nil
		profiles, err := c.List(ctx)
		s := NewSnapshot(profiles, c.o.Restricted, c.o.Now())
		// A plan depends on more of the catalog than the snapshot has: signatures, and which version is quarantined.
		all, failed := json.Marshal(profiles)
		err = errors.Join(err, failed)
		body := sha256.New()
		fmt.Fprintf(body, "%q%s", s.body(), all)
		if sum := string(body.Sum(nil)); err == nil && sum != published {
			text := s.String()
			c.snapshot.Store(&text)
			if err = use(text); err == nil {
				published = sum
			}
		}
		if err != nil && ctx.Err() == nil {
			c.o.Log.Error("catalog snapshot not published", "error", err)
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
