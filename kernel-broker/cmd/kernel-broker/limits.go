// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"log/slog"

	"golang.org/x/sys/unix"

	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/server"
)

// limitsConfig is limits in broker.yaml.
type limitsConfig struct {
	server.Limits `yaml:",inline"`

	// Former names of keys, which are still read.
	StrangerRate  *float64 `yaml:"stranger_rate"`
	StrangerBurst *int     `yaml:"stranger_burst"`
	Guests        *int     `yaml:"guests"`

	// Keys of earlier versions, which are ignored.
	UserUploads any `yaml:"user_uploads"`
	Patience    any `yaml:"patience"`
}

// takeFormer reads the keys that have another name now.
func (l *limitsConfig) takeFormer() {
	take(&l.AddressRate, l.StrangerRate)
	take(&l.AddressBurst, l.StrangerBurst)
	take(&l.Unauthenticated, l.Guests)
}

func take[T any](into, former *T) {
	if former != nil {
		*into = *former
	}
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
func within(l server.Limits, files uint64, log *slog.Logger) server.Limits {
	needed := func() uint64 { return uint64(l.Connections+l.Unauthenticated) + reservedFiles }
	if files < reservedFiles+2 || needed() <= files {
		return l
	}
	had := l
	for needed() > files {
		l.Connections, l.Unauthenticated = max(1, l.Connections/2), max(1, l.Unauthenticated/2)
	}
	l.PeerConnections = min(l.PeerConnections, l.Connections)
	log.Warn("fewer connections than limits in broker.yaml allow: a process may have no more files (LimitNOFILE= of the service)",
		"files", files, "connections", l.Connections, "connections_configured", had.Connections, "unauthenticated", l.Unauthenticated, "unauthenticated_configured", had.Unauthenticated)
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
