// SPDX-License-Identifier: Apache-2.0

package web

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// TestOwner asks the kernel about real connections, and as root about one of another user.
func TestOwner(t *testing.T) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	mine, err := net.Dial("tcp4", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = mine.Close() }()
	want := []int{os.Getuid()}
	if os.Getuid() == 0 {
		const nobody = 65534
		cmd := exec.Command("bash", "-c", fmt.Sprintf("exec 3<>/dev/tcp/127.0.0.1/%d; read -r -u 3 || true", listener.Addr().(*net.TCPAddr).Port))
		cmd.Dir, cmd.SysProcAttr = "/", &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = cmd.Wait() }()
		want = append(want, nobody)
	}
	for _, uid := range want {
		c, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		if got, err := Owner(c.RemoteAddr(), c.LocalAddr()); got != uid || err != nil {
			t.Errorf("the connection of user %d is %d's, %v", uid, got, err)
		}
	}
	_, err = Owner(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}, listener.Addr())
	if !errors.Is(err, errNoSocket) {
		t.Errorf("a connection that is not there: %v", err)
	}
	if _, err := Owner(&net.UnixAddr{Name: "@"}, listener.Addr()); err == nil {
		t.Error("a socket of another family has an owner")
	}
}

// Only the socket at exactly this end is meant, and what cannot be read is no match.
func TestOwnerInATable(t *testing.T) {
	table := filepath.Join(t.TempDir(), "tcp")
	text := `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     7        0 1 1
   1: 0100007F:1F90 0100007F:C000 01 00000000:00000000 00:00000000 00000000     8        0 1 1
   2: 0100007F:C000 0100007F:1F91 01 00000000:00000000 00:00000000 00000000     9        0 1 1
   x: junk
   3: zzzzzzzz:C000 0100007F:1F90 01 00000000:00000000 00:00000000 00000000    10        0 1 1
   4: 0000000000000000FFFF00000100007F:C000 0000000000000000FFFF00000100007F:1F90 01 0:0 0:0 0 11 0 1 1
`
	if err := os.WriteFile(table, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	page := netip.MustParseAddrPort("127.0.0.1:8080")
	if uid, err := ownerIn(table, netip.MustParseAddrPort("127.0.0.1:49152"), page); uid != 11 || err != nil {
		t.Errorf("found %d, %v", uid, err)
	}
	if uid, err := ownerIn(table, netip.MustParseAddrPort("127.0.0.1:49153"), page); !errors.Is(err, errNoSocket) {
		t.Errorf("found %d, %v", uid, err)
	}
	if _, err := ownerIn(filepath.Join(t.TempDir(), "none"), page, page); !errors.Is(err, errNoSocket) {
		t.Errorf("without a table: %v", err)
	}
}
