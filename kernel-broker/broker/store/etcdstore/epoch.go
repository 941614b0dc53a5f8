// SPDX-License-Identifier: Apache-2.0

package etcdstore

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
)

// epoch is the number of a term: that of a later term is larger. It grows with the clock, too, so that it is larger also
// after the records were restored or moved, which leave it behind.
type epoch struct {
	number   uint64
	revision int64 // of the key; 0: there is none
}

func parseEpoch(kvs []*mvccpb.KeyValue) (e epoch, err error) {
	if len(kvs) == 0 {
		return epoch{}, nil
	}
	e.revision = kvs[0].ModRevision
	if e.number, err = strconv.ParseUint(string(kvs[0].Value), 10, 63); err != nil {
		return epoch{}, fmt.Errorf("key %q: %w: %w", store.EpochKey, store.ErrInvalid, err)
	}
	return e, nil
}

func (e epoch) next(now time.Time) epoch {
	return epoch{number: max(e.number+1, uint64(max(now.UnixMilli(), 0)))}
}

func (e epoch) unchanged(prefix string) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(prefix+store.EpochKey), "=", e.revision)
}

func (e epoch) put(prefix string) clientv3.Op {
	return clientv3.OpPut(prefix+store.EpochKey, strconv.FormatUint(e.number, 10))
}

// Begin begins an epoch of a store that no other broker can reach, which needs no lease.
func (s *Store) Begin(ctx context.Context) error {
	ctx, cancel := s.request(ctx)
	defer cancel()
	have, err := s.client.Get(ctx, s.prefix+store.EpochKey)
	if err != nil {
		return fmt.Errorf("epoch: %w", translate(err))
	}
	previous, err := parseEpoch(have.Kvs)
	if err != nil {
		return err
	}
	e := previous.next(time.Now())
	txn, err := s.client.Txn(ctx).If(previous.unchanged(s.prefix)).Then(e.put(s.prefix)).Commit()
	if err != nil {
		return fmt.Errorf("epoch: %w", translate(err))
	}
	if !txn.Succeeded {
		return fmt.Errorf("epoch: %w: another broker began one", store.ErrConflict)
	}
	s.own.Store(e.number)
	return nil
}

// Epoch is the number of this broker's term; 0: it has none.
func (s *Store) Epoch() uint64 {
	if t := s.term.Load(); t != nil {
		return t.epoch
	}
	return s.own.Load()
}
