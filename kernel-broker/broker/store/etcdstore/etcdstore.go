// SPDX-License-Identifier: Apache-2.0

// Package etcdstore is a store in etcd, embedded or external: it only knows endpoints.
//
// All keys are under a namespace, so several brokers can share one etcd. Every request has a time limit. Reads are
// linearizable and retried on a connection error; a commit is sent once, and a lost answer is reported as an unknown
// outcome, never hidden by a retry.
package etcdstore

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/cache"
)

// Defaults of Config.
const (
	DefaultTimeout = 5 * time.Second

	pageSize          = 256              // records per List request
	keepAliveInterval = 10 * time.Second // silence after which a peer is probed
	keepAliveTimeout  = 5 * time.Second  // then the connection is closed
)

// reconnect is faster than gRPC's default, which would leave the broker without its store for up to two minutes after
// etcd is back.
var reconnect = backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second}

// Config names the etcd endpoints and the namespace.
type Config struct {
	Endpoints []string                    // all http://host:port, all https://host:port, or unix:///path
	Prefix    string                      // of the namespace; empty: DefaultPrefix
	Cluster   string                      // names the namespace, see Namespace
	TLS       func() (*tls.Config, error) // read for each connection to an https endpoint; nil: Go's defaults
	User      string                      // empty: none, or the one that the client's certificate names
	Password  func() (string, error)      // of User; read each time that etcd asks for it
	Timeout   time.Duration               // of one request; 0: DefaultTimeout
	Logger    *slog.Logger                // nil: slog.Default()
}

// Store is a store.Store in etcd.
type Store struct {
	cfg     Config
	client  clients
	prefix  string
	timeout time.Duration
	log     *slog.Logger
	health  cache.Cache[struct{}, string]

	ctx     context.Context // ends at Close
	cancel  context.CancelFunc
	mu      sync.Mutex
	closing bool
	term    atomic.Pointer[term] // nil: no lease required to write
	group   sync.WaitGroup       // ends at Close
	own     atomic.Uint64        // epoch without a lease

	limits   atomic.Pointer[serverLimits]
	learning sync.Mutex
}

// DefaultPrefix begins the namespaces of all clusters of an etcd.
const DefaultPrefix = "/kernel-broker"

var (
	clusterName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,62}[A-Za-z0-9])?$`)
	prefixText  = regexp.MustCompile(`^/?[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*$`)
)

const maxPrefix = 128

// Namespace is the prefix of all keys of a cluster.
func Namespace(prefix, cluster string) (string, error) {
	prefix = cmp.Or(prefix, DefaultPrefix)
	if len(prefix) > maxPrefix || !prefixText.MatchString(prefix) {
		return "", fmt.Errorf("prefix %q: letters, digits and . _ - with single inner slashes only, at most %d", prefix, maxPrefix)
	}
	if !clusterName.MatchString(cluster) {
		return "", fmt.Errorf("cluster name %q: letters, digits and inner . _ - only, at most 64", cluster)
	}
	return prefix + "/" + cluster + "/", nil
}

// Open connects and waits, at most one request timeout, until the namespace can be read. Otherwise it returns
// store.ErrUnavailable.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	prefix, err := Namespace(cfg.Prefix, cfg.Cluster)
	if err != nil {
		return nil, err
	}
	cfg.Timeout = cmp.Or(cfg.Timeout, DefaultTimeout)
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	if len(cfg.Endpoints) == 0 {
		return nil, fmt.Errorf("etcd: %w: no endpoints", store.ErrUnavailable)
	}
	failed := func(err error) error {
		return fmt.Errorf("etcd: %w: %w", store.ErrUnavailable, explain(ctx, cfg, prefix, err))
	}
	client, err := connect(cfg)
	if err != nil {
		return nil, failed(err)
	}
	s := &Store{cfg: cfg, client: client, prefix: prefix, timeout: cfg.Timeout, log: cfg.Logger}
	limits := defaultLimits
	s.limits.Store(&limits)
	s.ctx, s.cancel = context.WithCancel(context.Background())
	if _, err := s.Get(ctx, "reachable?"); err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, errors.Join(failed(err), s.Close())
	}
	return s, nil
}

// Close implements store.Store.
func (s *Store) Close() error {
	s.mu.Lock()
	already := s.closing
	s.closing = true
	s.mu.Unlock()
	if already {
		return nil
	}
	s.resign()
	s.cancel()
	s.group.Wait()
	// The client reports its own cancelled context here.
	if err := s.client.Close(); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("etcd client: %w", err)
	}
	return nil
}

// request bounds one request by the caller, the timeout and Close.
func (s *Store) request(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	stop := context.AfterFunc(s.ctx, cancel)
	return ctx, func() { stop(); cancel() }
}

// Get implements store.Store.
func (s *Store) Get(ctx context.Context, key string) (store.Record, error) {
	ctx, cancel := s.request(ctx)
	defer cancel()
	resp, err := s.client.Get(ctx, s.prefix+key)
	if err != nil {
		return store.Record{}, fmt.Errorf("key %q: %w", key, translate(err))
	}
	if len(resp.Kvs) == 0 {
		return store.Record{}, fmt.Errorf("key %q: %w", key, store.ErrNotFound)
	}
	return s.record(resp.Kvs[0]), nil
}

// Commit implements store.Store: one etcd transaction. Its else branch reads the fenced keys, so that the conflict names
// the key as the server saw it at that instant.
func (s *Store) Commit(ctx context.Context, writes ...store.Write) (int64, error) {
	limits := s.limits.Load()
	if err := cmp.Or(store.Check(writes, s.Limits()), s.fits(writes)); err != nil {
		return 0, err
	}
	ctx, cancel := s.request(ctx)
	defer cancel()
	var fences []clientv3.Cmp
	var changes, reads []clientv3.Op
	for _, w := range writes {
		key := s.prefix + w.Key
		if w.Expect != store.AnyRevision {
			fences = append(fences, clientv3.Compare(clientv3.ModRevision(key), "=", w.Expect))
			reads = append(reads, clientv3.OpGet(key, clientv3.WithKeysOnly()))
		}
		if w.Delete {
			changes = append(changes, clientv3.OpDelete(key))
		} else {
			changes = append(changes, clientv3.OpPut(key, string(w.Value)))
		}
	}
	leader, leads := s.fence()
	if leads {
		fences = append(fences, leader)
		reads = append(reads, clientv3.OpGet(s.prefix+store.ActingKey))
	}
	resp, err := s.client.Txn(ctx).If(fences...).Then(changes...).Else(reads...).Commit()
	if err != nil {
		err = translate(err)
		if errors.Is(err, store.ErrTooLarge) {
			s.learn(limits)
		}
		return 0, fmt.Errorf("commit: %w", err)
	}
	if !resp.Succeeded && leads {
		if err := s.overtaken(resp); err != nil {
			return 0, err
		}
	}
	if !resp.Succeeded {
		return 0, conflict(writes, resp)
	}
	return resp.Header.Revision, nil
}

// conflict finds the first write whose expectation failed. The responses are
// those of the fenced writes, in their order.
func conflict(writes []store.Write, resp *clientv3.TxnResponse) error {
	next := 0
	for _, w := range writes {
		if w.Expect == store.AnyRevision {
			continue
		}
		if next >= len(resp.Responses) {
			break
		}
		var have int64
		if kvs := resp.Responses[next].GetResponseRange().GetKvs(); len(kvs) > 0 {
			have = kvs[0].ModRevision
		}
		if have != w.Expect {
			return &store.ConflictError{Key: w.Key, Expect: w.Expect, Have: have}
		}
		next++
	}
	// The server refused without a reason; nothing was applied.
	return fmt.Errorf("commit: %w: the server names no key", store.ErrConflict)
}

// translate maps etcd's errors to those of package store. Errors that are not known refusals become ErrUnavailable,
// which for a commit means an unknown outcome: the safe side.
func translate(err error) error {
	sentinel := store.ErrUnavailable
	switch {
	case errors.Is(err, rpctypes.ErrCompacted), errors.Is(err, rpctypes.ErrFutureRev):
		sentinel = store.ErrCompacted
	case errors.Is(err, rpctypes.ErrRequestTooLarge), errors.Is(err, rpctypes.ErrTooManyOps), isOversized(err):
		sentinel = store.ErrTooLarge
	case errors.Is(err, rpctypes.ErrNoSpace):
		sentinel = store.ErrFull
	case errors.Is(err, rpctypes.ErrDuplicateKey), errors.Is(err, rpctypes.ErrEmptyKey):
		sentinel = store.ErrInvalid
	}
	return fmt.Errorf("%w: %w", sentinel, err)
}

// isOversized detects gRPC's own limit. etcd uses the same code for "too many requests" and for its quota, with its own
// error type.
func isOversized(err error) bool {
	var known rpctypes.EtcdError
	return !errors.As(err, &known) && status.Code(err) == codes.ResourceExhausted
}

// listAttempts bounds how often a List starts again because its revision was
// compacted between two pages.
const listAttempts = 3

// List implements store.Store. It reads page by page at the revision of the
// first page, each page with a timeout of its own.
func (s *Store) List(ctx context.Context, prefix string) ([]store.Record, int64, error) {
	var err error
	for range listAttempts {
		var records []store.Record
		var at int64
		records, at, err = s.listOnce(ctx, s.prefix+prefix)
		if err == nil {
			return records, at, nil
		}
		if !errors.Is(err, store.ErrCompacted) {
			break
		}
	}
	return nil, 0, fmt.Errorf("list %q: %w", prefix, err)
}

func (s *Store) listOnce(ctx context.Context, prefix string) ([]store.Record, int64, error) {
	var records []store.Record
	var at int64
	from, end := prefix, clientv3.GetPrefixRangeEnd(prefix)
	for {
		resp, err := s.page(ctx, from, end, at, pageSize)
		if err != nil {
			return nil, 0, err
		}
		at = cmp.Or(at, resp.Header.Revision)
		for _, kv := range resp.Kvs {
			records = append(records, s.record(kv))
		}
		if !resp.More || len(resp.Kvs) == 0 {
			return records, at, nil
		}
		from = string(resp.Kvs[len(resp.Kvs)-1].Key) + "\x00"
	}
}

// Range implements store.Store.
func (s *Store) Range(ctx context.Context, from, before string, limit int) ([]store.Record, error) {
	err := store.CheckRange(from, before, limit)
	var resp *clientv3.GetResponse
	if err == nil {
		resp, err = s.page(ctx, s.prefix+from, s.prefix+before, 0, limit)
	}
	if err != nil {
		return nil, fmt.Errorf("range %q to %q: %w", from, before, err)
	}
	var records []store.Record
	for _, kv := range resp.Kvs {
		records = append(records, s.record(kv))
	}
	return records, nil
}

// page reads from a key up to an end at a revision, 0 meaning now. It uses key order, the server's own: for any other
// order etcd reads everything before it applies the limit.
func (s *Store) page(ctx context.Context, from, end string, at int64, limit int) (*clientv3.GetResponse, error) {
	ctx, cancel := s.request(ctx)
	defer cancel()
	resp, err := s.client.Get(ctx, from, clientv3.WithRange(end), clientv3.WithRev(at),
		clientv3.WithLimit(int64(limit)), clientv3.WithSort(clientv3.SortByKey, clientv3.SortAscend))
	if err != nil {
		return nil, translate(err)
	}
	return resp, nil
}

// record makes the key relative. The response's bytes are not shared.
func (s *Store) record(kv *mvccpb.KeyValue) store.Record {
	record := store.Record{Key: string(kv.Key[len(s.prefix):]), Revision: kv.ModRevision}
	if len(kv.Value) > 0 {
		record.Value = kv.Value
	}
	return record
}
