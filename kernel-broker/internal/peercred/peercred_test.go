// SPDX-License-Identifier: Apache-2.0

package peercred

import (
	"net"
	"os"
	"path/filepath"
	"testing"
)

func TestOf(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	client, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	conn, err := listener.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	who, err := Of(conn)
	if err != nil || int(who.Uid) != os.Getuid() || int(who.Gid) != os.Getgid() || int(who.Pid) != os.Getpid() {
		t.Errorf("peer is %+v, %v", who, err)
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	if who, err := Of(conn); err == nil {
		t.Errorf("of a closed socket: %+v", who)
	}
}
