// SPDX-License-Identifier: Apache-2.0

package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sync/semaphore"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/controller"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/limit"
)

const (
	// maxDecodes is how many credentials munged decodes for the broker at a time:
	// munged serves Slurm, too.
	maxDecodes = 8
	// maxListings are made at a time, and one for each user: an answer may have
	// ten megabytes.
	maxListings = 4
	// turnWait limits the wait for either.
	turnWait = 3 * time.Second
)

// listings are the methods whose answers grow with the site.
var listings = map[string]bool{
	api.CatalogService_ListProfiles_FullMethodName:   true,
	api.AllocationService_ListJobs_FullMethodName:    true,
	api.NodeService_ListNodes_FullMethodName:         true,
	api.RunService_ListRuns_FullMethodName:           true,
	api.EventService_ListEvents_FullMethodName:       true,
	api.TrustService_ListCertificates_FullMethodName: true,
}

var (
	// logRate limits the log lines about one caller's refusals.
	logRate = limit.Rate{PerSecond: 0.1, Burst: 1}
	// provenRate limits the good credentials of one address: root on a node makes some of all users, and those of the last
	// two minutes are remembered. One address then has a sixteenth of that memory.
	provenRate = limit.Rate{PerSecond: 100, Burst: 4000}
)

// quotas hold each caller to its limits.
type quotas struct {
	limits       Limits
	isExempt     func(Caller) bool
	users, nodes *limit.Rates
	addresses    *addressRates
	changes      *limit.Rates
	// failed counts calls that cost munged a decode and were refused, by address.
	failed                *addressRates
	proven                *addressRates
	logged                *limit.Rates
	calls, listings       *limit.Semaphore
	decodes, listingTurns *semaphore.Weighted
	memory                *memory
}

func newQuotas(l Limits, exempt func(Caller) bool, log *slog.Logger) *quotas {
	l.Changes = cmp.Or(l.Changes, DefaultLimits().Changes)
	rates := func(r limit.Rate) *limit.Rates { return limit.NewRates(r, limit.DefaultKeep, nil) }
	return &quotas{limits: l, isExempt: exempt, users: rates(l.user()), nodes: rates(l.node()), addresses: newAddressRates(l.address()), changes: rates(l.Changes),
		failed: newAddressRates(l.address()), proven: newAddressRates(provenRate), logged: rates(logRate), calls: limit.NewSemaphore(0), listings: limit.NewSemaphore(0),
		decodes: semaphore.NewWeighted(maxDecodes), listingTurns: semaphore.NewWeighted(maxListings), memory: newMemory(l.Unfinished, l.Arrival, log)}
}

// begin counts a call until done is called. The error is a RetryableError when a
// limit is reached.
func (q *quotas) begin(method string, caller Caller) (done func(), err error) {
	if q.isExempt(caller) {
		return func() {}, nil
	}
	holder := caller.holder()
	var rates interface {
		Take(key string) time.Duration
	} = q.addresses
	rate, most := q.limits.address(), 2*q.limits.Calls
	switch may := rules[method].may; {
	case caller.Known():
		rates, rate, most = q.users, q.users.Rate, q.limits.Calls
	case !caller.Node.Name.IsZero():
		rates, rate, most = q.nodes, q.nodes.Rate, q.limits.Calls
	case may == agents, may == fetchers:
		rates, rate = q.nodes, q.nodes.Rate
	}
	if wait := rates.Take(holder); wait > 0 {
		return nil, retryIn(wait, "%s: more than %v calls a second, and %d at once", holder, rate.PerSecond, rate.Burst)
	}
	if caller.conn != nil {
		if bytes := q.memory.backlog(caller.conn.holder); bytes > q.limits.Backlog {
			return nil, retryIn(time.Second, "%s: %d bytes of answers are not received yet", holder, bytes)
		}
	}
	if done = q.calls.TryAcquire(holder, most); done == nil {
		return nil, retryIn(time.Second, "%s: %d calls at a time are the limit", holder, most)
	}
	return done, nil
}

// decode waits for a turn at munged. An address whose credentials failed too
// often, or that had too many, has none.
func (q *quotas) decode(ctx context.Context, address string) (done func(), err error) {
	if err := acquire(ctx, q.decodes, "credentials"); err != nil {
		return nil, err
	}
	if wait := q.failed.Wait(address); wait > 0 {
		q.decodes.Release(1)
		return nil, retryIn(wait, "%s: more than %v failed credentials a second, and %d at once", addressOf(address), q.failed.PerSecond, q.failed.Burst)
	}
	if wait := q.proven.Wait(address); wait > 0 {
		q.decodes.Release(1)
		return nil, retryIn(wait, "%s: more than %v credentials a second, and %d at once", addressOf(address), q.proven.PerSecond, q.proven.Burst)
	}
	return func() { q.decodes.Release(1) }, nil
}

// listing waits for a turn, if the method is a listing.
func (q *quotas) listing(ctx context.Context, method string, caller Caller) (done func(), err error) {
	if !listings[method] || q.isExempt(caller) {
		return func() {}, nil
	}
	own := q.listings.TryAcquire(caller.holder(), 1)
	if own == nil {
		return nil, retryIn(time.Second, "%s: another listing is under way", caller.holder())
	}
	if err := acquire(ctx, q.listingTurns, "listings"); err != nil {
		own()
		return nil, err
	}
	return func() {
		q.listingTurns.Release(1)
		own()
	}, nil
}

func acquire(ctx context.Context, turns *semaphore.Weighted, what string) error {
	waiting, cancel := context.WithTimeout(ctx, turnWait)
	defer cancel()
	err := turns.Acquire(waiting, 1)
	if err != nil && ctx.Err() == nil {
		return retryIn(time.Second, "too many %s at a time, none free within %v", what, turnWait)
	}
	return err
}

// retryIn returns a RetryableError. The wait is rounded up to tenths of a second.
func retryIn(wait time.Duration, format string, args ...any) error {
	wait = time.Duration(math.Ceil(float64(wait)/1e8)) * 100 * time.Millisecond
	return &kb.RetryableError{Wait: wait, Err: fmt.Errorf("%s; retry in %v: %w", fmt.Sprintf(format, args...), wait, kb.ErrExhausted)}
}

func isRetryable(err error) bool {
	var retry *kb.RetryableError
	return errors.As(err, &retry)
}

// holder names the caller for its limits. Root on a node can make MUNGE credentials of any user, and takes nothing from the
// user who is on the broker's host.
func (c Caller) holder() string {
	switch {
	case c.Local:
		return fmt.Sprintf("uid %d", c.UID)
	case c.Verified:
		return fmt.Sprintf("uid %d by MUNGE", c.UID)
	case c.Node.Name.IsZero():
		return addressOf(c.Address)
	}
	return c.host()
}

// host names for the record where a caller over the network is, whichever user it claims to be.
func (c Caller) host() string {
	if !c.Node.Name.IsZero() {
		return "node " + c.Node.Name.Name
	}
	return networkOf(c.Address)
}

// addressOf is an address without its port and zone.
func addressOf(address string) string {
	ip, text := parseAddress(address)
	if !ip.IsValid() {
		return text
	}
	return ip.String()
}

// networkOf is an address without its port. Of IPv6 it is the network of 64 bits: a
// host may have any address in it.
func networkOf(address string) string {
	if ip, _ := parseAddress(address); ip.Is6() && !ip.IsLoopback() {
		if network, err := ip.Prefix(64); err == nil {
			return network.String()
		}
	}
	return addressOf(address)
}

// parseAddress returns the text without a port if it is no IP address.
func parseAddress(address string) (netip.Addr, string) {
	if host, _, err := net.SplitHostPort(address); err == nil {
		address = host
	}
	ip, err := netip.ParseAddr(address)
	if err != nil {
		return netip.Addr{}, address
	}
	return ip.Unmap().WithZone(""), address
}

// addressRates limit addresses, and the IPv6 network that an address is in to some
// times as much: a host may have any address in it, and other hosts are there, too.
type addressRates struct {
	*limit.Rates
	networks *limit.Rates
}

// networkRates is how many addresses' rates one IPv6 network has.
const networkRates = 8

func newAddressRates(r limit.Rate) *addressRates {
	network := limit.Rate{PerSecond: networkRates * r.PerSecond, Burst: networkRates * r.Burst}
	return &addressRates{limit.NewRates(r, limit.DefaultKeep, nil), limit.NewRates(network, limit.DefaultKeep, nil)}
}

// Take takes a token of the address and one of its network. It returns how long it
// has to wait for both; then it takes none of the network's.
func (r *addressRates) Take(address string) time.Duration {
	if wait := r.Rates.Take(addressOf(address)); wait > 0 {
		return wait
	}
	return r.networks.Take(networkOf(address))
}

// Wait returns what Take would, and takes no token.
func (r *addressRates) Wait(address string) time.Duration {
	return max(r.Rates.Wait(addressOf(address)), r.networks.Wait(networkOf(address)))
}

// Limits of one caller, so that the server has room for all others. A caller is
// an authenticated user or node, else an address (of IPv6, a network of 64 bits).
//
// Administrators on the broker's host and Slurm's hooks are exempt from all but
// the sizes of messages and the times of calls.
//
// The keys are those of limits in broker.yaml.
type Limits struct {
	// MessageBytes of one received message.
	MessageBytes int `yaml:"message_bytes"`
	// Calls of one user, node or address in a second, and at once after a pause.
	// A node's also limit the messages that are read from its stream.
	UserRate     float64 `yaml:"user_rate"`
	UserBurst    int     `yaml:"user_burst"`
	NodeRate     float64 `yaml:"node_rate"`
	NodeBurst    int     `yaml:"node_burst"`
	AddressRate  float64 `yaml:"address_rate"`
	AddressBurst int     `yaml:"address_burst"`
	// Changes limits the calls of one caller that change something: their audit
	// records are never left out. The zero value is the default.
	Changes limit.Rate `yaml:"-"`
	// Calls of one caller at a time.
	Calls int `yaml:"user_calls"`
	// Backlog limits the bytes of answers that one caller has not received.
	Backlog int64 `yaml:"backlog_bytes"`
	// Unfinished limits what the requests take that are not complete, of all
	// callers together who have not proven who they are, and the answers that these
	// have not received. All others have knownShare times as much. Arrival is the
	// time for a request to come whole, of a stream for its first message.
	Unfinished int64         `yaml:"unfinished_bytes"`
	Arrival    time.Duration `yaml:"arrival"`

	// Connections over the network, and PeerConnections of one address, or of one
	// user on the broker's host. Unauthenticated limits those that show no node's
	// certificate where TLS is on, and those of users on the broker's host.
	Connections     int `yaml:"connections"`
	PeerConnections int `yaml:"peer_connections"`
	Unauthenticated int `yaml:"unauthenticated"`

	// Handshake is the time that a client has for each step of its handshake. So many
	// Handshakes compute at a time (0: some for each CPU), and the others wait for
	// HandshakeWait. A connection that has had no call for Idle is closed.
	Handshake     time.Duration `yaml:"handshake"`
	Handshakes    int           `yaml:"handshakes"`
	HandshakeWait time.Duration `yaml:"handshake_wait"`
	Idle          time.Duration `yaml:"idle"`
	// Heartbeats of all agents in a second.
	Heartbeats float64 `yaml:"heartbeats"`
}

func (l Limits) user() limit.Rate { return limit.Rate{PerSecond: l.UserRate, Burst: l.UserBurst} }
func (l Limits) node() limit.Rate { return limit.Rate{PerSecond: l.NodeRate, Burst: l.NodeBurst} }
func (l Limits) address() limit.Rate {
	return limit.Rate{PerSecond: l.AddressRate, Burst: l.AddressBurst}
}

// DefaultLimits fit a cluster of 10,000 nodes.
func DefaultLimits() Limits {
	return Limits{
		// The names of 65,536 nodes, each of 63 bytes, fit in.
		MessageBytes: 5 << 20,
		UserRate:     20, UserBurst: 200,
		NodeRate: 50, NodeBurst: 500,
		AddressRate: 10, AddressBurst: 100,
		Changes: limit.Rate{PerSecond: 1, Burst: 500},
		Calls:   32, Backlog: 64 << 20,
		Unfinished: 64 << 20, Arrival: 30 * time.Second,
		Connections: 16384, PeerConnections: 100, Unauthenticated: 4096,
		Handshake: 10 * time.Second, HandshakeWait: 40 * time.Second, Idle: 5 * time.Minute,
		Heartbeats: controller.DefaultHeartbeats,
	}
}

// Validate refuses limits that leave no room to work.
func (l Limits) Validate() error {
	var wrong []error
	refuse := func(bad bool, format string, args ...any) {
		if bad {
			wrong = append(wrong, fmt.Errorf(format, args...))
		}
	}
	refuse(l.MessageBytes < 64<<10 || l.MessageBytes > 1<<30, "message_bytes: %d is not within 64 KiB to 1 GiB", l.MessageBytes)
	for name, r := range map[string]limit.Rate{"user": l.user(), "node": l.node(), "address": l.address()} {
		err := r.Validate()
		refuse(err != nil, "%s_rate, %s_burst: %v", name, name, err)
	}
	refuse(l.Calls < 1, "user_calls: %d is less than 1", l.Calls)
	refuse(l.Backlog < maxSend, "backlog_bytes: %d is less than the largest answer, %d", l.Backlog, maxSend)
	refuse(l.Unfinished < leastUnfinished || l.Unfinished > 1<<40, "unfinished_bytes: %d is not within %d to 1 TiB", l.Unfinished, leastUnfinished)
	refuse(l.PeerConnections < 1 || l.PeerConnections > l.Connections, "peer_connections: %d is not within 1 to connections (%d)",
		l.PeerConnections, l.Connections)
	refuse(l.Unauthenticated < 1 || l.Unauthenticated > l.Connections, "unauthenticated: %d is not within 1 to connections (%d)", l.Unauthenticated, l.Connections)
	refuse(l.Handshakes < 0 || l.Handshakes > 1024, "handshakes: %d is not within 0 to 1024", l.Handshakes)
	refuse(!(l.Heartbeats >= 1 && l.Heartbeats <= 1e5), "heartbeats: %v is not within 1 to 100000", l.Heartbeats)
	for name, d := range map[string]time.Duration{"handshake": l.Handshake, "handshake_wait": l.HandshakeWait, "idle": l.Idle, "arrival": l.Arrival} {
		refuse(d < time.Second || d > 24*time.Hour, "%s: %v is not within 1s to 24h", name, d)
	}
	return errors.Join(wrong...)
}
