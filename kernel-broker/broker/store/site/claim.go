// SPDX-License-Identifier: Apache-2.0

package site

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
)

// ErrForeign means that a broker must not act on the records that it finds, or on none.
var ErrForeign = errors.New("not this site's records")

// Place is where a broker has its records.
type Place struct {
	Cluster string
	Dir     string // the data folder
	Kind    Kind
	// Store names the store, and Remove the command that empties it.
	Store, Remove string
	// Keyed: this host has the key of the store's secrets.
	Keyed bool
	// Left reports whether the data folder has an embedded store with data.
	Left bool
}

// step is what is left to do before a broker acts.
type step int

const (
	ready    step = iota
	remember      // the data folder gets the store's name
	name          // both get a name
)

// Check reports whether a broker may act on a store. It changes nothing.
func Check(ctx context.Context, s store.Store, p Place) error {
	_, _, _, err := look(ctx, s, p)
	return err
}

// Claim is Check, and names a store and a data folder that have no name. Only a broker that acts calls it.
func Claim(ctx context.Context, s store.Store, p Place, now time.Time) (Identity, error) {
	local, kept, next, err := look(ctx, s, p)
	if err != nil {
		return Identity{}, err
	}
	switch next {
	case ready:
		return *kept, nil
	case remember:
		return *kept, Local{Cluster: p.Cluster, ID: kept.ID, Store: p.Kind}.Write(p.Dir)
	}
	own := Local{Cluster: p.Cluster, ID: newID(), Store: p.Kind, New: true}
	if local != nil {
		own.ID = local.ID
	}
	// First here: a broker that dies in between finds its own name in the store.
	if err := own.Write(p.Dir); err != nil {
		return Identity{}, err
	}
	id := Identity{Format: format, Cluster: p.Cluster, ID: own.ID, Since: now.UTC().Truncate(time.Second)}
	write, err := id.write(0)
	if err == nil {
		_, err = s.Commit(ctx, write)
	}
	if err != nil {
		return Identity{}, fmt.Errorf("record of the site: %w", err)
	}
	own.New = false
	return id, own.Write(p.Dir)
}

// Adopt says that the records of a store are this data folder's, whatever it knew before.
func Adopt(ctx context.Context, s store.Store, p Place) (Identity, error) {
	kept, _, err := Read(ctx, s)
	if err != nil {
		return Identity{}, err
	}
	if err := p.whole(kept); err != nil {
		return Identity{}, err
	}
	if kept != nil {
		return *kept, Local{Cluster: p.Cluster, ID: kept.ID, Store: p.Kind}.Write(p.Dir)
	}
	// The next broker names it.
	id := Identity{Cluster: p.Cluster, ID: newID()}
	return id, Local{Cluster: p.Cluster, ID: id.ID, Store: p.Kind, New: true}.Write(p.Dir)
}

func look(ctx context.Context, s store.Store, p Place) (*Local, *Identity, step, error) {
	local, err := ReadLocal(p.Dir)
	if err != nil {
		return nil, nil, 0, err
	}
	kept, _, err := Read(ctx, s)
	if err != nil {
		return nil, nil, 0, err
	}
	empty := false
	if kept == nil {
		if empty, err = Empty(ctx, s); err != nil {
			return nil, nil, 0, err
		}
	}
	next, err := p.decide(local, kept, empty)
	return local, kept, next, err
}

// whole refuses another cluster's records, and half of them.
func (p Place) whole(kept *Identity) error {
	switch {
	case kept == nil:
		return nil
	case kept.Cluster != p.Cluster:
		return fmt.Errorf("%s has the records of the cluster %q, and broker.yaml is of %q: correct cluster, or etcd.prefix: %w", p.Store, kept.Cluster, p.Cluster, ErrForeign)
	case kept.Unfinished != "":
		return fmt.Errorf("%s has a part of the records only, since a %s did not finish: run it again; to give it up: %s: %w", p.Store, kept.Unfinished, p.Remove, ErrForeign)
	}
	return nil
}

// decide says what a broker does that finds these names.
func (p Place) decide(local *Local, kept *Identity, empty bool) (step, error) {
	if err := p.whole(kept); err != nil {
		return 0, err
	}
	if local != nil && local.Cluster != p.Cluster {
		return 0, fmt.Errorf("the data folder %s is of the cluster %q, and broker.yaml is of %q: correct cluster or data_dir: %w", p.Dir, local.Cluster, p.Cluster, ErrForeign)
	}
	known := local != nil && !local.New
	switch {
	case known && local.Store != p.Kind && p.Kind == External:
		return 0, fmt.Errorf("the records of this site are in the embedded store in %s, and etcd.endpoints names another: run kernel-broker store move, which takes them there: %w",
			filepath.Join(p.Dir, "etcd"), ErrForeign)
	case known && local.Store != p.Kind:
		return 0, fmt.Errorf("the records of this site are in an etcd, and etcd.endpoints names none: name it again; or take them back with "+
			"kernel-broker store backup while it is named, and kernel-broker store restore while it is not: %w", ErrForeign)
	case p.Kind == Embedded && kept == nil:
		return name, nil
	case p.Kind == Embedded:
		// It is in the data folder, where nobody else has one.
		if local != nil && local.ID == kept.ID && known {
			return ready, nil
		}
		return remember, nil
	case kept == nil && known && empty:
		return 0, fmt.Errorf("%s has no records, and had those of this site: correct etcd.endpoints or etcd.prefix, or run kernel-broker store restore FILE; "+
			"to begin without any, remove %s: %w", p.Store, filepath.Join(p.Dir, File), ErrForeign)
	case kept == nil && known:
		return 0, fmt.Errorf("%s has records without a name: if they are this site's, run kernel-broker store adopt: %w", p.Store, ErrForeign)
	case kept == nil && empty && p.Left && local == nil:
		return 0, fmt.Errorf("%s has no records, and %s has some: run kernel-broker store move, which takes them there; to begin without any, remove that folder: %w",
			p.Store, filepath.Join(p.Dir, "etcd"), ErrForeign)
	case kept == nil:
		return name, nil
	case local == nil && p.Keyed:
		return remember, nil
	case local == nil || local.ID != kept.ID:
		return 0, fmt.Errorf("%s has the records of another site, which has the same cluster name, or this one's data folder %s was lost: change cluster or etcd.prefix of one site; "+
			"if the records are this site's, run kernel-broker store adopt: %w", p.Store, p.Dir, ErrForeign)
	case local.New:
		return remember, nil
	}
	return ready, nil
}
