// SPDX-License-Identifier: Apache-2.0

package link

import (
	"net"
	"os"
	"strconv"
	"testing"
)

func TestDialFromAPrivilegedPort(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	first, err := Dial(t.Context(), listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	second, err := Dial(t.Context(), listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	if os.Geteuid() != 0 {
		return // that it dials at all is what can be seen
	}
	for _, conn := range []net.Conn{first, second} {
		if port := conn.LocalAddr().(*net.TCPAddr).Port; port < firstPrivileged || port > lastPrivileged {
			t.Errorf("root dialled from port %d", port)
		}
	}
	// A service that starts later gets its port.
	own := first.LocalAddr().(*net.TCPAddr).Port
	service, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(own))
	if err != nil {
		t.Fatalf("port %d is kept from others: %v", own, err)
	}
	service.Close()
}

func TestDialNobody(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	// Its port is nobody else's, and nobody listens there.
	held, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if conn, err := Dial(t.Context(), held.LocalAddr().String()); err == nil {
		conn.Close()
		t.Fatal("nobody listens, and somebody answered")
	}
}
