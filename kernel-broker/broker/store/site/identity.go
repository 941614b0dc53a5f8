// SPDX-License-Identifier: Apache-2.0

// Package site says whose records a store has, and copies them: from one store to another, into a file, and back.
//
// A store has a record that names its site, and the broker's data folder has a file with the same name. A broker that finds
// another site's records, half of its own, or none where there were some, does not act on them.
package site

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/atomicfile"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/strictjson"
)

const (
	// Key of the record with the identity.
	Key = "site"
	// File in the broker's data folder.
	File = "site.json"

	format   = 1
	maxLocal = 4096
)

// Identity names the site whose records a store has.
type Identity struct {
	Format  int    `json:"format"`
	Cluster string `json:"cluster"`
	ID      string `json:"id"`
	// Since when this store has them.
	Since time.Time `json:"since"`
	// Unfinished is what fills the store; empty: all records are there.
	Unfinished string `json:"unfinished,omitempty"`
}

// Kind of a store.
type Kind string

// Kinds of stores.
const (
	Embedded Kind = "embedded"
	External Kind = "external"
)

// Local is what a data folder knows of its site.
type Local struct {
	Format  int    `json:"format"`
	Cluster string `json:"cluster"`
	ID      string `json:"id"`
	Store   Kind   `json:"store"`
	// New: the store may not have it yet.
	New bool `json:"new,omitempty"`
}

// newID makes a name that no other site has.
func newID() string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	return hex.EncodeToString(id[:])
}

// Read returns the identity with its revision; nil where the store has none.
func Read(ctx context.Context, s store.Store) (*Identity, int64, error) {
	rec, err := s.Get(ctx, Key)
	if errors.Is(err, store.ErrNotFound) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, fmt.Errorf("record of the site: %w", err)
	}
	id := &Identity{}
	if err := strictjson.Decode(rec.Value, id); err != nil {
		return nil, 0, fmt.Errorf("record of the site: %w", err)
	}
	if id.Format != format || id.ID == "" || id.Cluster == "" {
		return nil, 0, fmt.Errorf("record of the site has format %d, this program supports %d", id.Format, format)
	}
	return id, rec.Revision, nil
}

func (id Identity) write(expect int64) (store.Write, error) {
	id.Format = format
	value, err := json.Marshal(id)
	return store.Write{Key: Key, Value: value, Expect: expect}, err
}

// ReadLocal returns what a data folder knows; nil where it knows nothing.
func ReadLocal(dir string) (*Local, error) {
	path := filepath.Join(dir, File)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("site of the data folder: %w", err)
	}
	l := &Local{}
	if len(text) > maxLocal {
		err = fmt.Errorf("more than %d bytes: %w", maxLocal, kb.ErrInvalid)
	} else {
		err = strictjson.Decode(text, l)
	}
	if err == nil && (l.Format != format || l.ID == "" || l.Cluster == "" || l.Store != Embedded && l.Store != External) {
		err = fmt.Errorf("it has format %d, this program supports %d: %w", l.Format, format, kb.ErrInvalid)
	}
	if err != nil {
		return nil, fmt.Errorf("site of the data folder: %s: %w", path, err)
	}
	return l, nil
}

// Write keeps it in a data folder.
func (l Local) Write(dir string) error {
	l.Format = format
	if err := atomicfile.WriteJSON(filepath.Join(dir, File), l, 0o644); err != nil {
		return fmt.Errorf("site of the data folder: %w", err)
	}
	return nil
}

// Empty reports whether a store has no record.
func Empty(ctx context.Context, s store.Store) (bool, error) {
	for _, err := range current(ctx, s) {
		return false, err
	}
	return true, nil
}
