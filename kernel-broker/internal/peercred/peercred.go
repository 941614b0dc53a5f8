// SPDX-License-Identifier: Apache-2.0

// Package peercred gets the credentials of a local socket's peer from the kernel.
package peercred

import (
	"errors"
	"net"

	"golang.org/x/sys/unix"
)

// Of returns the peer's credentials at connect time. They come from the kernel, so a peer cannot forge them.
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
