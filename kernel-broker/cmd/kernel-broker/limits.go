// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/server"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/limit"
)

// limitsConfig is limits in broker.yaml.
type limitsConfig struct {
	MessageBytes    int           `yaml:"message_bytes"`
	UserRate        float64       `yaml:"user_rate"`
	UserBurst       int           `yaml:"user_burst"`
	NodeRate        float64       `yaml:"node_rate"`
	NodeBurst       int           `yaml:"node_burst"`
	StrangerRate    float64       `yaml:"stranger_rate"`
	StrangerBurst   int           `yaml:"stranger_burst"`
	UserCalls       int           `yaml:"user_calls"`
	BacklogBytes    int64         `yaml:"backlog_bytes"`
	Connections     int           `yaml:"connections"`
	PeerConnections int           `yaml:"peer_connections"`
	Guests          int           `yaml:"guests"`
	Handshake       time.Duration `yaml:"handshake"`
	Idle            time.Duration `yaml:"idle"`

	// Keys of earlier versions, which are ignored.
	UserUploads any `yaml:"user_uploads"`
	Patience    any `yaml:"patience"`
}

func defaultLimits() limitsConfig {
	d := server.DefaultLimits()
	return limitsConfig{
		MessageBytes: d.MessageBytes, UserRate: d.Users.PerSecond, UserBurst: d.Users.Burst,
		NodeRate: d.Nodes.PerSecond, NodeBurst: d.Nodes.Burst, StrangerRate: d.Addresses.PerSecond, StrangerBurst: d.Addresses.Burst,
		UserCalls: d.Calls, BacklogBytes: d.Backlog,
		Connections: d.Connections, PeerConnections: d.PeerConnections, Guests: d.Unauthenticated,
		Handshake: d.Handshake, Idle: d.Idle,
	}
}

func (l limitsConfig) limits() server.Limits {
	return server.Limits{
		MessageBytes: l.MessageBytes, Users: limit.Rate{PerSecond: l.UserRate, Burst: l.UserBurst},
		Nodes:     limit.Rate{PerSecond: l.NodeRate, Burst: l.NodeBurst},
		Addresses: limit.Rate{PerSecond: l.StrangerRate, Burst: l.StrangerBurst},
		Calls:     l.UserCalls, Backlog: l.BacklogBytes,
		Connections: l.Connections, PeerConnections: l.PeerConnections, Unauthenticated: l.Guests,
		Handshake: l.Handshake, Idle: l.Idle,
	}
}

func (l limitsConfig) validate() error {
	if err := l.limits().Validate(); err != nil {
		return fmt.Errorf("limits: %w", err)
	}
	return nil
}

// warnIgnored names the keys that are set and have no effect any more.
func (l limitsConfig) warnIgnored(log *slog.Logger) {
	for key, value := range map[string]any{"limits.user_uploads": l.UserUploads, "limits.patience": l.Patience} {
		if value != nil {
			log.Warn("this key of broker.yaml has no effect any more, remove it", "key", key)
		}
	}
}

// reservedFiles are open files that are no connections: etcd's, artifacts', those
// of programs that are run.
const reservedFiles = 1024

// within returns the limits that this process has files for: connections must
// leave etcd its own.
func (l limitsConfig) within(files uint64, log *slog.Logger) limitsConfig {
	if files < reservedFiles+2 || uint64(l.Connections+l.Guests)+reservedFiles <= files {
		return l
	}
	had := l
	for uint64(l.Connections+l.Guests)+reservedFiles > files {
		l.Connections, l.Guests = max(1, l.Connections/2), max(1, l.Guests/2)
	}
	l.PeerConnections = min(l.PeerConnections, l.Connections)
	log.Warn("fewer connections than limits in broker.yaml allow: a process may have no more files (LimitNOFILE= of the service)",
		"files", files, "connections", l.Connections, "not", had.Connections, "guests", l.Guests, "not_guests", had.Guests)
	return l
}

// maxOpenFiles is how many files this process may have open; Go has raised it as
// far as it goes.
func maxOpenFiles() (uint64, error) {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err != nil {
		return 0, fmt.Errorf("limit of open files: %w", err)
	}
	return r.Cur, nil
}
