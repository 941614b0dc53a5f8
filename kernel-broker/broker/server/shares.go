// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/tap"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/limit"
)

// shares sees to it that nobody takes what is for all.
type shares struct {
	limits                  Limits
	always                  []uint32 // have no share, on the broker's host
	users, nodes, strangers *limit.Rates
	words                   *limit.Rates
	changes                 *limit.Rates
	open                    *limit.Places // calls, from their headers on
	calls, uploads          *limit.Places // calls, from when it is known whose they are
	books                   *books
	strain                  *strain
	log                     *slog.Logger
}

func newShares(l Limits, always []uint32, log *slog.Logger) *shares {
	if l.Changes == (limit.Rate{}) {
		l.Changes = DefaultLimits().Changes
	}
	return &shares{limits: l, always: always, log: log, words: newWords(), books: &books{of: map[string]int64{}}, strain: newStrain(l),
		users: limit.NewRates(l.Users, limit.DefaultKeep, nil), nodes: limit.NewRates(l.Nodes, limit.DefaultKeep, nil),
		strangers: limit.NewRates(l.Strangers, limit.DefaultKeep, nil), changes: limit.NewRates(l.Changes, limit.DefaultKeep, nil),
		open: limit.NewPlaces(0), calls: limit.NewPlaces(0), uploads: limit.NewPlaces(0)}
}

// How many times Calls one may have open before it is known that they are too
// many: an answer of that comes only after the call's message did. An address
// may be that of a host with many users.
const (
	openOfOne  = 2
	openOfHost = 16
)

// uploads are the methods that hold a place of the store's.
var uploads = map[string]bool{
	api.CatalogService_UploadArtifact_FullMethodName: true,
	api.RunService_UploadRunFile_FullMethodName:      true,
}

// tap sees a call before its first message is received, and before anything is
// kept of it: it begins the call's time. gRPC forgets to free what it has of a
// call that is refused here, so too many of them end the connection.
func (s *shares) tap(ctx context.Context, info *tap.Info) (context.Context, error) {
	within := shortly
	if r, has := rules[info.FullMethodName]; has {
		within = r.limit
	}
	caller := CallerOf(ctx)
	cancel, free := func() {}, func() {}
	if within > 0 {
		ctx, cancel = context.WithTimeout(ctx, within)
	}
	if !s.exempt(caller) {
		most := s.limits.Calls * openOfOne
		if !caller.Local && caller.Node.Name.IsZero() {
			most = s.limits.Calls * openOfHost
		}
		if free = s.open.Take(caller.holder(), most); free == nil {
			free = func() {}
			if caller.line != nil {
				// Not from here: what ends it waits for this reader.
				go caller.line.cut(fmt.Sprintf("%d calls are open", most))
			}
		}
	}
	context.AfterFunc(ctx, func() {
		cancel()
		free()
	})
	return ctx, nil
}

func (s *shares) exempt(c Caller) bool { return c.Local && slices.Contains(s.always, c.UID) }

// take takes a call's share, once it is known whose it is. It returns
// kb.RetryableError when the share is used up.
func (s *shares) take(method string, caller Caller) (free func(), err error) {
	if s.exempt(caller) {
		return func() {}, nil
	}
	holder := caller.holder()
	rates, allowed := s.strangers, s.limits.Strangers
	switch may := rules[method].may; {
	case caller.Known():
		rates, allowed = s.users, s.limits.Users
	case !caller.Node.Name.IsZero(), may == agents, may == fetchers:
		rates, allowed = s.nodes, s.limits.Nodes
	}
	if wait := rates.Take(holder); wait > 0 {
		return nil, later(wait, "%s: more than %v calls a second, and %d at once", holder, allowed.PerSecond, allowed.Burst)
	}
	if caller.line != nil {
		if owed := s.books.owed(caller.line.holder); owed > s.limits.Backlog {
			return nil, later(time.Second, "%s: %d bytes of answers wait to be taken", holder, owed)
		}
	}
	most := s.limits.Calls
	if !caller.Known() && caller.Node.Name.IsZero() {
		most *= openOfOne
	}
	call := s.calls.Take(holder, most)
	if call == nil {
		return nil, later(time.Second, "%s: %d calls are under way, which is the most", holder, most)
	}
	if !uploads[method] {
		return call, nil
	}
	upload := s.uploads.Take(holder, s.limits.Uploads)
	if upload == nil {
		call()
		return nil, later(5*time.Second, "%s: %d uploads are under way, which is the most", holder, s.limits.Uploads)
	}
	return func() {
		upload()
		call()
	}, nil
}

func later(wait time.Duration, format string, args ...any) error {
	// Whole tenths, and never too early.
	wait = time.Duration(math.Ceil(float64(wait)/1e8)) * 100 * time.Millisecond
	return &kb.RetryableError{Wait: wait, Err: fmt.Errorf("%s; come back in %v: %w", fmt.Sprintf(format, args...), wait, kb.ErrExhausted)}
}

// holder names whom what a caller takes is counted for.
func (c Caller) holder() string {
	switch {
	case c.Known():
		return fmt.Sprintf("uid %d", c.UID)
	case !c.Node.Name.IsZero():
		return "node " + c.Node.Name.Name
	}
	return hostOf(c.Address)
}

// host names where a caller from the network is, whoever he says he is, and what
// that is one of many in. A certificate is for one node, wherever it is.
func (c Caller) host() (host, network string) {
	if !c.Node.Name.IsZero() {
		node := "node " + c.Node.Name.Name
		return node, node
	}
	host = hostOf(c.Address)
	return host, networkOf(host)
}

// networkOf is what somebody gets who gets more addresses than one: of IPv6 a
// site's 48 bits, of IPv4 24.
func networkOf(host string) string {
	ip, err := netip.ParseAddr(strings.TrimSuffix(host, "/64"))
	if err != nil || ip.IsLoopback() {
		return host
	}
	bits := 24
	if ip.Is6() {
		bits = 48
	}
	network, err := ip.Prefix(bits)
	if err != nil {
		return host
	}
	return network.String()
}

// hostOf is an address without its port. Of IPv6 it is the network: a host has
// as many addresses in it as it likes.
func hostOf(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	if ip = ip.Unmap().WithZone(""); ip.Is6() && !ip.IsLoopback() {
		if network, err := ip.Prefix(64); err == nil {
			return network.String()
		}
	}
	return ip.String()
}
