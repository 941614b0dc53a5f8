// SPDX-License-Identifier: Apache-2.0

package web

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
)

// socketTables list this host's TCP sockets with their users. A program for IPv6 has its connections to IPv4 in the second.
var socketTables = []string{"/proc/net/tcp", "/proc/net/tcp6"}

// errNoSocket is a connection of which the kernel lists no other end.
var errNoSocket = errors.New("the kernel lists no such socket on this host")

// Owner finds the user whose process has the other end of a loopback connection. A tunnel of ssh runs as the user who
// logged in.
func Owner(remote, local net.Addr) (uid int, err error) {
	from, err := addressOf(remote)
	if err != nil {
		return 0, err
	}
	to, err := addressOf(local)
	if err != nil {
		return 0, err
	}
	for _, table := range socketTables {
		uid, err := ownerIn(table, from, to)
		if !errors.Is(err, errNoSocket) {
			return uid, err
		}
	}
	return 0, fmt.Errorf("%v: %w", remote, errNoSocket)
}

func addressOf(a net.Addr) (netip.AddrPort, error) {
	tcp, is := a.(*net.TCPAddr)
	if !is {
		return netip.AddrPort{}, fmt.Errorf("%v is no TCP address", a)
	}
	at := tcp.AddrPort()
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port()), nil
}

// ownerIn looks for the socket at from that is connected to an address.
func ownerIn(table string, from, to netip.AddrPort) (int, error) {
	file, err := os.Open(table)
	if errors.Is(err, os.ErrNotExist) {
		return 0, errNoSocket // a kernel without IPv6
	}
	if err != nil {
		return 0, err
	}
	defer func() { _ = file.Close() }() // only read from
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 8 || parseSocket(fields[1]) != from || parseSocket(fields[2]) != to {
			continue
		}
		return strconv.Atoi(fields[7])
	}
	if err := lines.Err(); err != nil {
		return 0, fmt.Errorf("%s: %w", table, err)
	}
	return 0, errNoSocket
}

// parseSocket reads an address as the kernel lists it: words of 32 bits in the host's order, in hex, and the port.
func parseSocket(text string) netip.AddrPort {
	address, portText, _ := strings.Cut(text, ":")
	port, err := strconv.ParseUint(portText, 16, 16)
	if err != nil || len(address) != 8 && len(address) != 32 {
		return netip.AddrPort{}
	}
	var raw []byte
	for ; address != ""; address = address[8:] {
		word, err := strconv.ParseUint(address[:8], 16, 32)
		if err != nil {
			return netip.AddrPort{}
		}
		raw = binary.NativeEndian.AppendUint32(raw, uint32(word))
	}
	at, _ := netip.AddrFromSlice(raw)
	return netip.AddrPortFrom(at.Unmap(), uint16(port))
}
