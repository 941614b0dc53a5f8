// SPDX-License-Identifier: Apache-2.0

// Package peercred asks the kernel who is at the other end of a local socket.
package peercred

import (
	"errors"
	"net"

	"golang.org/x/sys/unix"
)

// Of is who connected, as they were then. The kernel says it, and no peer can lie.
func Of(conn *net.UnixConn) (*unix.Ucred, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	var peer *unix.Ucred
	var asking error
	err = raw.Control(func(fd uintptr) {
		peer, asking = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	return peer, errors.Join(err, asking)
}
