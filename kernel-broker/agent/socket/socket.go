// SPDX-License-Identifier: Apache-2.0

// Package socket is what the agent's sockets for the users of its node have in
// common: anybody may connect, the kernel says who did, each user has so many
// connections at a time, and what passes by itself ends no server.
package socket

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/peercred"
)

// Listener is a *net.UnixListener, or what a test puts into its place.
type Listener interface {
	AcceptUnix() (*net.UnixConn, error)
	Close() error
}

// Listen makes a socket to which everybody may connect, in a folder that is made
// if it is missing. One that an agent left which died is replaced.
func Listen(path string) (*net.UnixListener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("socket %q: %w", path, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("socket %q: %w", path, err)
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("socket %q: %w", path, err)
	}
	// Giving a socket away would take CAP_CHOWN, which the agent has no other use for.
	if err := os.Chmod(path, 0o666); err != nil { //nolint:gosec // G302: a socket for all: who calls is told by the kernel
		return nil, fmt.Errorf("socket %q: %w", path, errors.Join(err, listener.Close()))
	}
	return listener, nil
}

// passing are errors that say nothing against a socket: who knocked is gone, or
// descriptors or memory are short, which others give back.
var passing = []error{unix.ECONNABORTED, unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM}

// pause is how long nobody is let in after such an error.
const pause = 100 * time.Millisecond

// Accept waits for the next connection, and through errors that pass; short is
// told of each, and may be nil. An error is that the socket is closed, or broken.
func Accept(l Listener, short func(error)) (*net.UnixConn, error) {
	for {
		conn, err := l.AcceptUnix()
		if !slices.ContainsFunc(passing, func(one error) bool { return errors.Is(err, one) }) {
			return conn, err
		}
		if short != nil {
			short(err)
		}
		time.Sleep(pause)
	}
}

// UID is the user at the other end of a connection.
func UID(conn *net.UnixConn) (uint32, error) {
	peer, err := peercred.Of(conn)
	if err != nil {
		return 0, fmt.Errorf("peer: %w", err)
	}
	return peer.Uid, nil
}
