// SPDX-License-Identifier: Apache-2.0

package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
)

// serverLimits are those of one request to etcd (--max-txn-ops, --max-request-bytes): of all members, the smallest.
type serverLimits struct{ ops, bytes int }

// defaultLimits are etcd's own.
var defaultLimits = serverLimits{ops: 128, bytes: 3 << 19}

// least is what the broker needs: below, a profile's record has no room for its versions.
var least = store.Limits{Writes: 16, Bytes: 256 << 10}

const (
	limitStep   = 4 << 10 // how exactly the size of a request is found out
	longestKey  = 256     // of the broker's keys
	perWrite    = 64      // around the keys and the value of a write
	measureTime = 30 * time.Second
	// limitKey is in the conditions of requests that change nothing; no key has this name.
	limitKey = store.CheckPrefix + "limits"
)

// Limits implements store.Store.
func (s *Store) Limits() store.Limits {
	l := *s.limits.Load()
	if s.term.Load() != nil {
		l.ops-- // the condition that this broker acts
	}
	return store.Limits{Writes: min(store.MaxWrites, l.ops), Bytes: min(store.MaxCommitBytes, l.bytes-s.around(2))}
}

// around is what n writes take of a request beside their values and once their keys: the namespace and the key are in the
// condition, in the write, and in what is read after a conflict.
func (s *Store) around(n int) int { return n * (3*len(s.prefix) + 2*longestKey + perWrite) }

// full is a request with the largest commit.
func (s *Store) full() serverLimits {
	return serverLimits{ops: store.MaxWrites + 1, bytes: store.MaxCommitBytes + s.around(store.MaxWrites+1)}
}

// fits refuses a commit that makes too large a request.
func (s *Store) fits(writes []store.Write) error {
	size, most := s.around(1), s.limits.Load().bytes
	for _, w := range writes {
		size += 3*(len(s.prefix)+len(w.Key)) + len(w.Value) + perWrite
	}
	if size > most {
		return fmt.Errorf("%w: a request of %d bytes, at most %d", store.ErrTooLarge, size, most)
	}
	return nil
}

// learn finds the limits out after a server has refused a request for its size.
func (s *Store) learn(had *serverLimits) {
	s.learning.Lock()
	defer s.learning.Unlock()
	if s.limits.Load() != had {
		return // another commit has just found them out
	}
	ctx, cancel := context.WithTimeout(s.ctx, measureTime)
	defer cancel()
	for _, endpoint := range s.cfg.Endpoints {
		if err := s.measureMember(ctx, endpoint); err != nil {
			s.log.Warn("limits of etcd not found out", "endpoint", endpoint, "error", err)
		}
	}
	if now := *s.limits.Load(); now != *had {
		s.log.Warn("etcd takes smaller requests than before", "operations", now.ops, "bytes", now.bytes)
	}
}

// measureMember lowers the limits to those of a member.
func (s *Store) measureMember(ctx context.Context, endpoint string) error {
	conn, err := s.client.Dial(endpoint)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	found, err := s.measure(ctx, clientv3.NewKVFromKVClient(kvClient(conn), s.client.Client))
	if err != nil {
		return err
	}
	for {
		had := s.limits.Load()
		lower := serverLimits{min(had.ops, found.ops), min(had.bytes, found.bytes)}
		if s.limits.CompareAndSwap(had, &lower) {
			return nil
		}
	}
}

// measure finds the limits out by requests that change nothing.
func (s *Store) measure(ctx context.Context, kv clientv3.KV) (serverLimits, error) {
	full := s.full()
	ops, err := largest(full.ops, defaultLimits.ops, 1, func(n int) error { return s.try(ctx, kv, n, 1) })
	if err != nil {
		return serverLimits{}, err
	}
	bytes, err := largest(full.bytes, full.bytes/2, limitStep, func(n int) error { return s.try(ctx, kv, 1, n) })
	return serverLimits{ops, bytes}, err
}

// largest is the largest number up to full, in steps, that is not too large. It tries full first and then what is likely.
func largest(full, likely, step int, try func(int) error) (int, error) {
	taken, refused := 0, full+1
	for n := full; n > taken; {
		switch err := try(n); {
		case err == nil:
			taken = n
		case errors.Is(err, store.ErrTooLarge):
			refused = n
		default:
			return 0, err
		}
		if n == full {
			n = likely
		} else {
			n = taken + (refused-taken)/2/step*step
		}
	}
	return taken, nil
}

// try sends a transaction of so many operations and bytes whose condition never holds: the bytes are the value that a key
// has to have that nobody makes. With a deletion in it, it is no mere question, which has no limit.
func (s *Store) try(ctx context.Context, kv clientv3.KV, ops, bytes int) error {
	ctx, cancel := s.request(ctx)
	defer cancel()
	key := s.prefix + limitKey
	never := clientv3.Compare(clientv3.Value(key), "=", strings.Repeat("x", bytes))
	then := []clientv3.Op{clientv3.OpDelete(key)}
	for len(then) < ops {
		then = append(then, clientv3.OpGet(key, clientv3.WithCountOnly()))
	}
	resp, err := kv.Txn(ctx).If(never).Then(then...).Commit()
	if err != nil {
		return translate(err)
	}
	if resp.Succeeded {
		return fmt.Errorf("key %q: %w: it is there", limitKey, store.ErrInvalid)
	}
	return nil
}
