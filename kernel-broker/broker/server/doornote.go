// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"syscall"

	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/authz"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/peercred"
)

// connecting is the action of one who has not come as far as a call.
const connecting = "connect"

// noteAtTheDoor records who was turned away before there was a call: at which
// step, and why. Who went by himself, as monitors do, was not.
func noteAtTheDoor(g *authz.Guard, log *slog.Logger, caller Caller, step string, err error) {
	if g == nil || errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
		return
	}
	d := authz.Decision{Asker: caller.asker(), Action: connecting, Via: step, Reason: err.Error(), Unknown: !caller.Known()}
	if name := caller.Node.Name; !name.IsZero() {
		d.Who = "node " + name.Name
	}
	if err := g.NoteWhole(d, nil); err != nil {
		log.Error("refusal not on record", "caller", caller.String(), "error", err)
	}
}

// callerAt is who is at the other end, as far as that is known without a word.
func callerAt(conn net.Conn) Caller {
	if local, ok := unheld(conn).(*net.UnixConn); ok {
		if ucred, err := peercred.Of(local); err == nil {
			return Caller{Local: true, UID: ucred.Uid, GID: ucred.Gid, PID: ucred.Pid}
		}
		return Caller{Address: "local socket"}
	}
	return Caller{Address: conn.RemoteAddr().String()}
}
