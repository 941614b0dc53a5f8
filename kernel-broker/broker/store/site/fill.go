// SPDX-License-Identifier: Apache-2.0

package site

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
)

// page is how many records of the target are read at a time.
const page = 32

// end is after every key.
const end = "\xff"

// Source is where records are copied from.
type Source struct {
	Identity Identity // without an ID where there is none
	Name     string
	Count    int
	// Records are in the order of their keys, and the same each time.
	Records func(context.Context) iter.Seq2[store.Record, error]
}

// Progress is told how many of all records a stage has seen.
type Progress func(stage string, done, of int)

// Target is where records are copied to.
type Target struct {
	Place
	Store store.Store
	// Room is how many bytes the records may have; 0: not known.
	Room int64
}

// ErrNotEmpty means that a target has records.
var ErrNotEmpty = errors.New("not empty")

// Copy makes the records of a store those of a source. Until the last step the target is marked unfinished, and no broker acts
// on it; whoever was killed is repeated. The source is only read.
func Copy(ctx context.Context, from Source, to Target, progress Progress) error {
	local, err := ReadLocal(to.Dir)
	if err != nil {
		return err
	}
	kept, revision, err := Read(ctx, to.Store)
	if err != nil {
		return err
	}
	id, err := to.begin(ctx, from, local, kept)
	if err != nil {
		return err
	}
	if err := to.fits(ctx, from, progress); err != nil {
		return err
	}
	id.Unfinished, id.Since = from.Name, time.Now().UTC().Truncate(time.Second)
	if revision, err = to.mark(ctx, id, revision); err != nil {
		return err
	}
	if _, err := merge(ctx, from, to.Store, true, func(done int) { progress("copied", done, from.Count) }); err != nil {
		return err
	}
	differs, err := merge(ctx, from, to.Store, false, func(done int) { progress("compared", done, from.Count) })
	if err == nil && differs > 0 {
		err = fmt.Errorf("%d records differ from their originals: somebody else writes to %s; end that, and run this again", differs, to.Place.Store)
	}
	if err != nil {
		return err
	}
	if err := (Local{Cluster: to.Cluster, ID: id.ID, Store: to.Kind}).Write(to.Dir); err != nil {
		return err
	}
	id.Unfinished = ""
	_, err = to.mark(ctx, id, revision)
	return err
}

// begin returns the identity that the target gets. It refuses a target with other records.
func (t Target) begin(ctx context.Context, from Source, local *Local, kept *Identity) (Identity, error) {
	id := from.Identity
	switch {
	case id.Cluster != t.Cluster:
		return id, fmt.Errorf("%s has the records of the cluster %q, and broker.yaml is of %q: %w", from.Name, id.Cluster, t.Cluster, ErrForeign)
	case local != nil && local.Cluster != t.Cluster, local != nil && !local.New && id.ID != "" && local.ID != id.ID:
		return id, fmt.Errorf("%s has the records of another site than the data folder %s: correct data_dir, or remove %s there: %w", from.Name, t.Dir, File, ErrForeign)
	case kept == nil:
		empty, err := Empty(ctx, t.Store)
		if err == nil && !empty {
			err = fmt.Errorf("%s: %w: it has records: %s", t.Place.Store, ErrNotEmpty, t.instead())
		}
		if err != nil {
			return id, err
		}
	case kept.Unfinished == "":
		return id, fmt.Errorf("%s: %w: it has the records of a site since %s: %s",
			t.Place.Store, ErrNotEmpty, kept.Since.Format(time.RFC3339), t.instead())
	case id.ID != "" && id.ID != kept.ID:
		return id, fmt.Errorf("%s: %w: a %s of another site did not finish there: %s",
			t.Place.Store, ErrNotEmpty, kept.Unfinished, t.instead())
	}
	if id.ID == "" && local != nil {
		id.ID = local.ID
	}
	if id.ID == "" {
		id.ID = newID()
	}
	return id, nil
}

// instead is what to do about a target that is not empty.
func (t Target) instead() string {
	if t.Kind == Embedded {
		return "if nobody needs them, " + t.Remove
	}
	return "correct etcd.endpoints or etcd.prefix; or, if nobody needs them: " + t.Remove
}

// fits looks at all records before the first is written.
func (t Target) fits(ctx context.Context, from Source, progress Progress) error {
	most := t.Store.Limits().Bytes
	count, size := 0, int64(0)
	for rec, err := range from.Records(ctx) {
		if err != nil {
			return err
		}
		n := len(rec.Key) + len(rec.Value)
		if n > most {
			return fmt.Errorf("record %q has %d bytes, and %s takes at most %d: start etcd with --max-request-bytes=1572864, its default", rec.Key, n, t.Place.Store, most)
		}
		count, size = count+1, size+int64(n)
		progress("read", count, from.Count)
	}
	// Pages and history want room, too.
	if need := size * 2; t.Room > 0 && need > t.Room {
		return fmt.Errorf("the records have %d MiB, and %s has room for %d MiB, half of which history may take: start etcd with a larger --quota-backend-bytes", size>>20, t.Place.Store, t.Room>>20)
	}
	return nil
}

// mark writes the identity.
func (t Target) mark(ctx context.Context, id Identity, revision int64) (int64, error) {
	write, err := id.write(revision)
	if err == nil {
		revision, err = t.Store.Commit(ctx, write)
	}
	if err != nil {
		return 0, fmt.Errorf("record of the site: %w", err)
	}
	return revision, nil
}

// current are the records of a store as they are when they are reached.
func current(ctx context.Context, s store.Store) iter.Seq2[store.Record, error] {
	return func(yield func(store.Record, error) bool) {
		for from := ""; ; {
			list, err := s.Range(ctx, from, end, page)
			if err != nil {
				yield(store.Record{}, err)
				return
			}
			for _, rec := range list {
				if isRecord(rec.Key) && !yield(rec, nil) {
					return
				}
			}
			if len(list) < page {
				return
			}
			from = list[len(list)-1].Key + "\x00"
		}
	}
}

// isRecord tells records from what the store and its identity need for themselves.
func isRecord(key string) bool { return key != Key && !store.Own(key) }

// Records leaves out what a store and its identity need for themselves.
func Records(all iter.Seq2[store.Record, error]) iter.Seq2[store.Record, error] {
	return func(yield func(store.Record, error) bool) {
		for rec, err := range all {
			if (err != nil || isRecord(rec.Key)) && !yield(rec, err) {
				return
			}
		}
	}
}

// merge compares two stores by their keys, and makes the second like the first, if so. It returns how many records differed.
func merge(ctx context.Context, from Source, to store.Store, change bool, seen func(int)) (differs int, err error) {
	wanted, stopWanted := iter.Pull2(from.Records(ctx))
	defer stopWanted()
	have, stopHave := iter.Pull2(current(ctx, to))
	defer stopHave()
	batch := batch{ctx: ctx, store: to}
	want, err, more := wanted()
	is, isErr, there := have()
	for count := 0; more || there; {
		if err = errors.Join(err, isErr); err != nil {
			return differs, err
		}
		missing := more && (!there || want.Key < is.Key)
		surplus := there && (!more || is.Key < want.Key)
		if surplus || missing || !bytes.Equal(want.Value, is.Value) {
			differs++
			switch {
			case change && surplus:
				err = batch.add(store.Write{Key: is.Key, Delete: true, Expect: store.AnyRevision})
			case change:
				err = batch.add(store.Write{Key: want.Key, Value: want.Value, Expect: store.AnyRevision})
			}
			if err != nil {
				return differs, err
			}
		}
		if !missing {
			is, isErr, there = have()
		}
		if !surplus {
			count++
			seen(count)
			want, err, more = wanted()
		}
	}
	return differs, batch.flush()
}

// batch collects writes into commits of at most half of what the store takes.
type batch struct {
	ctx    context.Context
	store  store.Store
	writes []store.Write
	size   int
}

func (b *batch) add(w store.Write) error {
	most := b.store.Limits()
	size := len(w.Key) + len(w.Value)
	if len(b.writes) > 0 && (len(b.writes) >= most.Writes/2 || b.size+size > most.Bytes/2) {
		if err := b.flush(); err != nil {
			return err
		}
	}
	b.writes, b.size = append(b.writes, w), b.size+size
	return nil
}

// flush commits what was collected, in smaller parts where the store turns out to take less.
func (b *batch) flush() error {
	if len(b.writes) == 0 {
		return nil
	}
	parts := [][]store.Write{b.writes}
	b.writes, b.size = nil, 0
	for len(parts) > 0 {
		_, err := b.store.Commit(b.ctx, parts[0]...)
		if errors.Is(err, store.ErrTooLarge) && len(parts[0]) > 1 {
			half := len(parts[0]) / 2
			parts = append([][]store.Write{parts[0][:half], parts[0][half:]}, parts[1:]...)
			continue
		}
		if err != nil {
			return fmt.Errorf("copy: %w", err)
		}
		parts = parts[1:]
	}
	return nil
}
