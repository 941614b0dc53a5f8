// SPDX-License-Identifier: Apache-2.0

// Package sockettest has a listener for tests of socket servers.
package sockettest

import (
	"fmt"
	"net"
	"os"
	"strings"
)

// Listener is the listener behind Troubled.
type Listener interface {
	AcceptUnix() (*net.UnixConn, error)
	Close() error
}

// Troubled fails a number of times, as the kernel does, before it accepts.
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

// UID parses the number at the end of the name of a client's socket as the user.
func UID(conn *net.UnixConn) (uid uint32, err error) {
	name := conn.RemoteAddr().String()
	_, err = fmt.Sscan(name[strings.LastIndex(name, "-")+1:], &uid)
	return uid, err
}
