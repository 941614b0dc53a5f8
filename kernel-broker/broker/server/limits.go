// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"fmt"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/limit"
)

// Limits of what one may have of the server, so that there is enough for
// everybody else. A user is who is proven to call; a node likewise; a stranger
// is an address (of IPv6, a network of 64 bits) that proved nothing.
//
// Administrators on the broker's host and Slurm's hooks have no limits but those
// of messages and time: whoever floods the broker keeps neither from it.
type Limits struct {
	// MessageBytes of one message that comes in.
	MessageBytes int
	// Users, Nodes and Strangers may call so often, each of them. Nodes also
	// send so many messages in their stream; there they are made to wait.
	Users, Nodes, Strangers limit.Rate
	// Changes is how often each of them may change something, each time with two
	// records that are never left out; the zero value stands for the default, with
	// which that is some 100 MB a day.
	Changes limit.Rate
	// Calls that one has under way at a time, and Uploads of them.
	Calls, Uploads int
	// Backlog is how many bytes of answers one may leave lying.
	Backlog int64

	// Connections over the network in all, and PeerConnections from one
	// address, or of one user on the broker's host. Guests are how many of
	// those in all may be of others than nodes, where nodes show certificates,
	// and how many users on the broker's host may have in all.
	Connections, PeerConnections, Guests int

	// Handshake is how long one may take to say who he is; Patience how long a
	// message may take to come or to be taken, once it is due; Idle is when a
	// connection without a call is closed.
	Handshake, Patience, Idle time.Duration
}

// DefaultLimits fit a cluster of 10,000 nodes.
func DefaultLimits() Limits {
	return Limits{
		// A list of 65,536 names of nodes, each of 63 bytes, and room.
		MessageBytes: 8 << 20,
		Users:        limit.Rate{PerSecond: 20, Burst: 200},
		Nodes:        limit.Rate{PerSecond: 50, Burst: 500},
		Strangers:    limit.Rate{PerSecond: 10, Burst: 100},
		Changes:      limit.Rate{PerSecond: 1, Burst: 500},
		Calls:        32, Uploads: 4, Backlog: 64 << 20,
		Connections: 16384, PeerConnections: 256, Guests: 4096,
		Handshake: 10 * time.Second, Patience: time.Minute, Idle: 5 * time.Minute,
	}
}

// Validate refuses limits within which nobody could work.
func (l Limits) Validate() error {
	var wrong []error
	refuse := func(bad bool, format string, args ...any) {
		if bad {
			wrong = append(wrong, fmt.Errorf(format, args...))
		}
	}
	refuse(l.MessageBytes < 64<<10 || l.MessageBytes > 1<<30, "message_bytes: %d is not within 64 KiB to 1 GiB", l.MessageBytes)
	for name, r := range map[string]limit.Rate{"user": l.Users, "node": l.Nodes, "stranger": l.Strangers} {
		err := r.Validate()
		refuse(err != nil, "%s_rate, %s_burst: %v", name, name, err)
	}
	refuse(l.Calls < 1, "user_calls: %d is less than 1", l.Calls)
	refuse(l.Uploads < 1, "user_uploads: %d is less than 1", l.Uploads)
	refuse(l.Backlog < maxSend, "backlog_bytes: %d is less than the largest answer, %d", l.Backlog, maxSend)
	refuse(l.PeerConnections < 1 || l.PeerConnections > l.Connections, "peer_connections: %d is not within 1 to connections (%d)",
		l.PeerConnections, l.Connections)
	refuse(l.Guests < 1 || l.Guests > l.Connections, "guests: %d is not within 1 to connections (%d)", l.Guests, l.Connections)
	for name, d := range map[string]time.Duration{"handshake": l.Handshake, "patience": l.Patience, "idle": l.Idle} {
		refuse(d < time.Second || d > 24*time.Hour, "%s: %v is not within 1s to 24h", name, d)
	}
	return errors.Join(wrong...)
}
