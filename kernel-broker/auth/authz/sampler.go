// SPDX-License-Identifier: Apache-2.0

package authz

import (
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/limit"
)

// How many records one source causes by calls that change nothing: reads, and
// apart from them refusals, so that many reads hide no refusal. The rest is
// counted.
var (
	readRate    = limit.Rate{PerSecond: 1, Burst: 200}
	refusalRate = limit.Rate{PerSecond: 1, Burst: 100}
	// hostRate is for all users of one address. A user can have as many uids there
	// as MUNGE's key makes.
	hostRate = limit.Rate{PerSecond: 4, Burst: 2000}
	// networkRate is for all addresses together: at most 530,000 records a day, of
	// some 450 bytes.
	networkRate = limit.Rate{PerSecond: 6, Burst: 5000}
)

// sampler limits audit records per source. Safe for concurrent use; its memory is
// bounded.
type sampler struct {
	sources, hosts *limit.Rates
	network        *rate.Limiter
	now            func() time.Time
	skipped        atomic.Uint64
}

func newSampler(r limit.Rate, now func() time.Time) *sampler {
	return &sampler{sources: limit.NewRates(r, limit.DefaultKeep, now), hosts: limit.NewRates(hostRate, limit.DefaultKeep, now),
		network: rate.NewLimiter(rate.Limit(networkRate.PerSecond), networkRate.Burst), now: now}
}

// sample reports whether to record an event, and how many were skipped since the
// last one that was recorded. host is empty for callers on the broker's host.
func (s *sampler) sample(source, host string) (record bool, skipped uint64) {
	now := s.now()
	// The order keeps the tables from filling up: a key is added to one when the
	// wider limits have room.
	if host != "" && (s.network.TokensAt(now) < 1 || s.hosts.Take(host) > 0) || s.sources.Take(source) > 0 || host != "" && !s.network.AllowN(now, 1) {
		s.skip(1)
		return false, 0
	}
	return true, s.skipped.Swap(0)
}

// skip counts events that are not recorded.
func (s *sampler) skip(n uint64) { s.skipped.Add(n) }
