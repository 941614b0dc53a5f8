// SPDX-License-Identifier: Apache-2.0

// Package sealed keeps secrets in records of a store that others can read. A key seals them, AES-256-GCM with the record's
// name as associated data; the key is a file on each broker's host, and a record names the key.
package sealed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/strictjson"
)

// KeyRecord names the key that seals the secrets of a store.
const KeyRecord = "store-key"

// keyName is the value of that record.
type keyName struct {
	ID    string    `json:"id"`
	Host  string    `json:"host"`
	Since time.Time `json:"since"`
}

// value is that of a record with a secret.
type value struct {
	Key    string `json:"key"`
	Sealed []byte `json:"sealed"`
}

// Options say which secrets, and where their key is.
type Options struct {
	Cluster string
	// File has the key.
	File string
	// Begin has a store without a key get one: that of the file, which is made if it is missing. Only for a broker that acts.
	Begin bool
}

// Box reads and writes secrets.
type Box struct {
	store   store.Store
	cluster string
	key     *key
}

// Open has the key of a store's secrets. kb.ErrNotFound: the store has none, and none is to be made.
func Open(ctx context.Context, s store.Store, o Options) (*Box, error) {
	name, err := nameOf(ctx, s)
	if err != nil {
		return nil, err
	}
	if name == nil && !o.Begin {
		return nil, fmt.Errorf("secrets of the cluster %s: there is no key yet: %w", o.Cluster, kb.ErrNotFound)
	}
	k, err := readKey(o.File)
	missing := errors.Is(err, fs.ErrNotExist)
	switch {
	case missing && name != nil:
		return nil, fmt.Errorf("%w: a key that %s began with on %s seals the secrets of this cluster: %s", err, name.Host, name.Since.Format(time.DateOnly), remedy(o.File))
	case missing:
		// A broker that dies in between finds its key.
		if err := MakeKey(o.File); err != nil {
			return nil, err
		}
		k, err = readKey(o.File)
	}
	if err != nil {
		return nil, err
	}
	if name == nil {
		if err := begin(ctx, s, k); err != nil {
			return nil, err
		}
	} else if name.ID != k.id {
		return nil, fmt.Errorf("store_key_file: %s has the key %s, and the key %s, which %s began with on %s, seals the secrets of this cluster: %s: %w",
			o.File, k.id, name.ID, name.Host, name.Since.Format(time.DateOnly), remedy(o.File), kb.ErrFailedPrecondition)
	}
	return &Box{s, o.Cluster, k}, nil
}

func remedy(file string) string {
	return "copy " + file + " from another broker's host, or from a backup, mode 0600; if no copy is left, kernel-broker store drop-authorities --all begins with a new authority"
}

func nameOf(ctx context.Context, s store.Store) (*keyName, error) {
	rec, err := s.Get(ctx, KeyRecord)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	name := &keyName{}
	if err == nil {
		err = strictjson.Decode(rec.Value, name)
	}
	if err != nil {
		return nil, fmt.Errorf("record %q: %w", KeyRecord, err)
	}
	return name, nil
}

func begin(ctx context.Context, s store.Store, k *key) error {
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	text, err := json.Marshal(keyName{ID: k.id, Host: host, Since: time.Now().UTC().Truncate(time.Second)})
	if err == nil {
		_, err = s.Commit(ctx, store.Write{Key: KeyRecord, Value: text})
	}
	if err != nil {
		return fmt.Errorf("record %q: %w", KeyRecord, err)
	}
	return nil
}

// name is what a secret is bound to, so that a sealed value of one record is none of another.
func (b *Box) name(record string) string { return "kernel-broker\x00" + b.cluster + "\x00" + record }

// Secret is a record with its text.
type Secret struct {
	Key  string
	Text []byte
}

// List returns the secrets whose records' names begin with a prefix, sorted by name.
func (b *Box) List(ctx context.Context, prefix string) ([]Secret, error) {
	records, _, err := b.store.List(ctx, prefix)
	if err != nil {
		return nil, err
	}
	secrets := make([]Secret, len(records))
	for i, rec := range records {
		var v value
		err := strictjson.Decode(rec.Value, &v)
		if err == nil && v.Key != b.key.id {
			err = fmt.Errorf("the key %s seals it, and store_key_file has %s: %w", v.Key, b.key.id, kb.ErrFailedPrecondition)
		}
		if err == nil {
			secrets[i].Key = rec.Key
			secrets[i].Text, err = b.key.open(b.name(rec.Key), v.Sealed)
		}
		if err != nil {
			return nil, fmt.Errorf("record %q: %w: %w", rec.Key, kb.ErrInvalid, err)
		}
	}
	return secrets, nil
}

// Add writes secrets whose records must not exist: all of them, or none with store.ErrConflict.
func (b *Box) Add(ctx context.Context, secrets ...Secret) error {
	var writes []store.Write
	for _, s := range secrets {
		text, err := json.Marshal(value{b.key.id, b.key.seal(b.name(s.Key), s.Text)})
		if err != nil {
			return err
		}
		writes = append(writes, store.Write{Key: s.Key, Value: text})
	}
	_, err := b.store.Commit(ctx, writes...)
	return err
}
