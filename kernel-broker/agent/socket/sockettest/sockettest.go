// SPDX-License-Identifier: Apache-2.0

// Package sockettest has a listener for tests of what serves a socket.
package sockettest

import (
	"fmt"
	"net"
	"os"
	"strings"
)

// Listener is what Troubled asks when it is well.
type Listener interface {
	AcceptUnix() (*net.UnixConn, error)
	Close() error
}

// Troubled fails some times, as the kernel does, before it does what it is
// asked to.
type Troubled struct {
	Listener
	Errs []error
}

// AcceptUnix returns the next of the errors, or else the next connection.
func (l *Troubled) AcceptUnix() (*net.UnixConn, error) {
	if len(l.Errs) == 0 {
		return l.Listener.AcceptUnix()
	}
	err := l.Errs[0]
	l.Errs = l.Errs[1:]
	return nil, &net.OpError{Op: "accept", Net: "unix", Err: os.NewSyscallError("accept4", err)}
}

// UID takes the number at the end of the name of a client's socket for the user
// who connects.
func UID(conn *net.UnixConn) (uid uint32, err error) {
	name := conn.RemoteAddr().String()
	_, err = fmt.Sscan(name[strings.LastIndex(name, "-")+1:], &uid)
	return uid, err
}
