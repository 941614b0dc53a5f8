// SPDX-License-Identifier: Apache-2.0

package etcdstore

import (
	"bufio"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
)

// oldest is the oldest version that the tests run on.
const oldest = "3.4"

// Member is what is behind an endpoint.
type Member struct {
	Endpoint string
	Version  string
	// Quota is the database's largest size in bytes, and Used what is used of it; 0: not known.
	Quota, Used int64
	// Err is why it cannot be used.
	Err error

	cluster uint64
	full    bool
}

// Findings are what an etcd is, for a broker.
type Findings struct {
	Members []Member
	// Quota is the smallest of the members', 0: not known.
	Quota int64
	// Warnings are what an administrator should mend while the broker works.
	Warnings []string
}

// kvClient has requests of one member.
func kvClient(conn *grpc.ClientConn) pb.KVClient { return pb.NewKVClient(conn) }

// Examine finds out whether a broker can work with an etcd that others run: each member, the rights below the prefix, and
// the limits, which the store keeps to from then on.
func (s *Store) Examine(ctx context.Context) (Findings, error) {
	f := Findings{Members: make([]Member, len(s.cfg.Endpoints))}
	var all sync.WaitGroup
	for i, endpoint := range s.cfg.Endpoints {
		all.Go(func() { f.Members[i] = s.member(ctx, endpoint) })
	}
	all.Wait()
	if err := f.judgeMembers(); err != nil {
		return f, err
	}
	if err := s.authentication(ctx, &f); err != nil {
		return f, err
	}
	if err := s.rights(ctx, &f); err != nil {
		return f, err
	}
	for _, m := range f.Members {
		if m.Err != nil {
			continue
		}
		err := s.measureMember(ctx, m.Endpoint)
		if errors.Is(err, store.ErrFull) {
			return f, nil // which is among the warnings; the first refusal tells
		}
		if err != nil {
			return f, fmt.Errorf("%s: limits: %w", m.Endpoint, err)
		}
	}
	return f, s.enough()
}

func (s *Store) member(ctx context.Context, endpoint string) Member {
	m := Member{Endpoint: endpoint}
	rctx, cancel := s.request(ctx)
	defer cancel()
	status, err := s.client.Status(rctx, endpoint)
	if err != nil {
		m.Err = reach(ctx, s.cfg, endpoint)
		m.Err = cmp.Or(m.Err, err)
		return m
	}
	m.Version, m.cluster, m.Quota, m.Used = status.Version, status.Header.GetClusterId(), status.DbSizeQuota, status.DbSizeInUse
	m.full = slices.ContainsFunc(status.Errors, func(text string) bool { return strings.Contains(text, pb.AlarmType_NOSPACE.String()) })
	switch {
	case older(status.Version, oldest):
		m.Err = fmt.Errorf("etcd %s is older than %s, the oldest that works: upgrade it", status.Version, oldest)
	case status.Leader == 0:
		m.Err = errors.New("it has no leader: start more than half of the cluster's members")
	case status.IsLearner:
		m.Err = errors.New("it is a learner, which answers no requests: run etcdctl member promote, or take it out of etcd.endpoints")
	case m.Quota == 0: // before 3.6
		m.Quota = s.metric(ctx, endpoint, "etcd_server_quota_backend_bytes")
	}
	return m
}

// older compares major and minor version.
func older(version, than string) bool {
	have, want := numbers(version), numbers(than)
	return slices.Compare(have[:], want[:]) < 0
}

func numbers(version string) (n [2]int) {
	for i, text := range strings.SplitN(version, ".", 3)[:min(2, strings.Count(version, ".")+1)] {
		n[i], _ = strconv.Atoi(text) // no number is older than all
	}
	return n
}

// judgeMembers has no member that works be an error, and one that does not a warning.
func (f *Findings) judgeMembers() error {
	var errs []error
	var first *Member
	for i := range f.Members {
		m := &f.Members[i]
		if m.Err != nil {
			err := fmt.Errorf("%s: %w", m.Endpoint, m.Err)
			errs = append(errs, err)
			f.Warnings = append(f.Warnings, err.Error())
			continue
		}
		if first == nil {
			first = m
		} else if m.cluster != first.cluster {
			return fmt.Errorf("%s and %s are of two clusters: name the members of one in etcd.endpoints", first.Endpoint, m.Endpoint)
		}
		if m.full {
			f.Warnings = append(f.Warnings, m.Endpoint+full)
		}
		if m.Quota > 0 && (f.Quota == 0 || m.Quota < f.Quota) {
			f.Quota = m.Quota
		}
	}
	if first == nil {
		return fmt.Errorf("%w: %w", store.ErrUnavailable, errors.Join(errs...))
	}
	return nil
}

const full = ": its database is full, so it refuses all writes: etcdctl compact and defrag, then alarm disarm; or a larger --quota-backend-bytes"

// authentication warns of a user whom nobody asks for a password.
func (s *Store) authentication(ctx context.Context, f *Findings) error {
	if s.cfg.User == "" {
		return nil
	}
	password, err := s.cfg.Password()
	if err != nil {
		return err
	}
	ctx, cancel := s.request(ctx)
	defer cancel()
	_, err = s.client.login.Authenticate(ctx, s.cfg.User, password)
	if errors.Is(err, rpctypes.ErrAuthNotEnabled) {
		f.Warnings = append(f.Warnings, fmt.Sprintf("etcd.user is %q, and this etcd asks nobody for a password: run etcdctl auth enable", s.cfg.User))
		return nil
	}
	if err != nil {
		return explain(ctx, s.cfg, s.prefix, translate(err))
	}
	return nil
}

// rights tries what the broker does: it reads, writes, deletes and keeps a lease below the prefix. The key that it writes
// ends with that lease.
func (s *Store) rights(ctx context.Context, f *Findings) error {
	key := s.prefix + store.CheckPrefix + rand.Text()
	var lease clientv3.LeaseID
	var missing []string
	var refusal error
	try := func(right string, do func(context.Context) error) error {
		ctx, cancel := s.request(ctx)
		defer cancel()
		err := do(ctx)
		if errors.Is(err, rpctypes.ErrPermissionDenied) {
			if refusal = err; !slices.Contains(missing, right) {
				missing = append(missing, right)
			}
			return nil
		}
		return err
	}
	for _, step := range []struct {
		right string
		do    func(context.Context) error
	}{
		{"read", func(ctx context.Context) error {
			_, err := s.client.Get(ctx, s.prefix, clientv3.WithPrefix(), clientv3.WithLimit(1), clientv3.WithKeysOnly())
			return err
		}},
		{"keep leases", func(ctx context.Context) error {
			granted, err := s.client.Grant(ctx, int64(DefaultTTL.Seconds()))
			if err == nil {
				lease = granted.ID
			}
			return err
		}},
		{"write", func(ctx context.Context) error {
			_, err := s.client.Put(ctx, key, "", clientv3.WithLease(lease))
			return err
		}},
		{"keep leases", func(ctx context.Context) error {
			_, err := s.client.KeepAliveOnce(ctx, lease)
			return err
		}},
		{"write", func(ctx context.Context) error {
			_, err := s.client.Delete(ctx, key)
			return err
		}},
		{"keep leases", func(ctx context.Context) error {
			_, err := s.client.Revoke(ctx, lease)
			return err
		}},
	} {
		err := try(step.right, step.do)
		switch {
		case errors.Is(err, rpctypes.ErrNoSpace):
			// It goes on when there is room, as a broker does that runs.
			if len(f.Warnings) == 0 || !strings.HasSuffix(f.Warnings[len(f.Warnings)-1], full) {
				f.Warnings = append(f.Warnings, "etcd"+full)
			}
			return nil
		case err != nil:
			return fmt.Errorf("%s below %q: %w", step.right, s.prefix, translate(err))
		case len(missing) > 0 && step.right == "keep leases" && lease == 0:
			return denied(s.cfg, s.prefix, missing, refusal)
		}
	}
	if len(missing) > 0 {
		return denied(s.cfg, s.prefix, missing, refusal)
	}
	return nil
}

// enough refuses an etcd whose limits are too small for the broker.
func (s *Store) enough() error {
	have := s.Limits()
	if have.Writes < least.Writes {
		return fmt.Errorf("etcd takes %d operations in a transaction, and the broker needs %d: start its members with --max-txn-ops=128, etcd's default",
			s.limits.Load().ops, least.Writes+1)
	}
	if have.Bytes < least.Bytes {
		return fmt.Errorf("etcd takes requests of %d bytes, and the broker needs %d: start its members with --max-request-bytes=1572864, etcd's default",
			s.limits.Load().bytes, least.Bytes+s.around(2))
	}
	return nil
}

// metric reads a figure that a member gives to everybody who may connect; 0 where it does not.
func (s *Store) metric(ctx context.Context, endpoint, name string) int64 {
	transport := &http.Transport{DisableKeepAlives: true}
	if secured(endpoint) {
		var err error
		if transport.TLSClientConfig, err = (handshake{s.cfg.TLS}).config(); err != nil {
			return 0
		}
	}
	ctx, cancel := s.request(ctx)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, endpoint+"/metrics", nil)
	if err != nil {
		return 0
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return 0
	}
	defer func() { _ = response.Body.Close() }()
	lines := bufio.NewScanner(io.LimitReader(response.Body, 8<<20))
	for lines.Scan() {
		if text, is := strings.CutPrefix(lines.Text(), name+" "); is && response.StatusCode == http.StatusOK {
			value, _ := strconv.ParseFloat(text, 64) // 0: not known
			return int64(value)
		}
	}
	return 0
}
