// SPDX-License-Identifier: Apache-2.0

// Package socket is the common part of the agent's sockets for users of the node: any user may connect, the kernel
// identifies the peer, connections per user are limited, and temporary errors do not end the server.
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

// Listener is a *net.UnixListener or its replacement in tests.
type Listener interface {
	AcceptUnix() (*net.UnixConn, error)
	Close() error
}

// Listen creates a socket that all users may connect to, in a folder that is created if missing. It replaces the socket
// of a dead agent.
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
	// Changing the socket's owner would need CAP_CHOWN, which the agent does not need otherwise.
	if err := os.Chmod(path, 0o666); err != nil { //nolint:gosec // G302: a socket for all users: the kernel identifies the peer
		return nil, fmt.Errorf("socket %q: %w", path, errors.Join(err, listener.Close()))
	}
	return listener, nil
}

// temporary are errors unrelated to the socket: the client is gone, or descriptors or memory are short for a while.
var temporary = []error{unix.ECONNABORTED, unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM}

// pause is the wait after such an error.
const pause = 100 * time.Millisecond

// Accept waits for the next connection and retries after passing errors, which it reports to short unless that is nil.
// An error means that the socket is closed or broken.
func Accept(l Listener, short func(error)) (*net.UnixConn, error) {
	for {
		conn, err := l.AcceptUnix()
		if !slices.ContainsFunc(temporary, func(one error) bool { return errors.Is(err, one) }) {
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
