// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"fmt"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/limit"
)

// Limits of one caller, so that the server has room for all others. A caller is
// an authenticated user or node, else an address (of IPv6, a network of 64 bits).
//
// Administrators on the broker's host and Slurm's hooks are exempt from all but
// the sizes of messages and the times of calls.
type Limits struct {
	// MessageBytes of one received message.
	MessageBytes int
	// Users, Nodes and Addresses limit the calls of one each. Nodes also limits
	// the messages that are read from a node's stream.
	Users, Nodes, Addresses limit.Rate
	// Changes limits the calls of one caller that change something: their audit
	// records are never left out. The zero value is the default.
	Changes limit.Rate
	// Calls of one caller at a time.
	Calls int
	// Backlog limits the bytes of answers that one caller has not received.
	Backlog int64

	// Connections over the network, and PeerConnections of one address, or of one
	// user on the broker's host. Unauthenticated limits those that show no node's
	// certificate where TLS is on, and those of users on the broker's host.
	Connections, PeerConnections, Unauthenticated int

	// Handshake is the time for a connection's handshake. A connection that has
	// had no call for Idle is closed.
	Handshake, Idle time.Duration
}

// DefaultLimits fit a cluster of 10,000 nodes.
func DefaultLimits() Limits {
	return Limits{
		// The names of 65,536 nodes, each of 63 bytes, fit in.
		MessageBytes: 5 << 20,
		Users:        limit.Rate{PerSecond: 20, Burst: 200},
		Nodes:        limit.Rate{PerSecond: 50, Burst: 500},
		Addresses:    limit.Rate{PerSecond: 10, Burst: 100},
		Changes:      limit.Rate{PerSecond: 1, Burst: 500},
		Calls:        32, Backlog: 64 << 20,
		Connections: 16384, PeerConnections: 100, Unauthenticated: 4096,
		Handshake: 10 * time.Second, Idle: 5 * time.Minute,
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
	for name, r := range map[string]limit.Rate{"user": l.Users, "node": l.Nodes, "stranger": l.Addresses} {
		err := r.Validate()
		refuse(err != nil, "%s_rate, %s_burst: %v", name, name, err)
	}
	refuse(l.Calls < 1, "user_calls: %d is less than 1", l.Calls)
	refuse(l.Backlog < maxSend, "backlog_bytes: %d is less than the largest answer, %d", l.Backlog, maxSend)
	refuse(l.PeerConnections < 1 || l.PeerConnections > l.Connections, "peer_connections: %d is not within 1 to connections (%d)",
		l.PeerConnections, l.Connections)
	refuse(l.Unauthenticated < 1 || l.Unauthenticated > l.Connections, "guests: %d is not within 1 to connections (%d)", l.Unauthenticated, l.Connections)
	for name, d := range map[string]time.Duration{"handshake": l.Handshake, "idle": l.Idle} {
		refuse(d < time.Second || d > 24*time.Hour, "%s: %v is not within 1s to 24h", name, d)
	}
	return errors.Join(wrong...)
}
