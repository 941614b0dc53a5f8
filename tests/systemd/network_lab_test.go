// SPDX-License-Identifier: Apache-2.0

//go:build lab

package systemd

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// ethernet is the switch of the machines' own network. Its ports are datagram sockets in the test's folder. A frame for
// a machine that is off or falls behind is lost, as on a real one.
type ethernet struct {
	ports map[string]chan []byte // by the socket of the machine
	seen  map[[6]byte]string     // the socket from which an address was last seen
}

// switchIn is the switch's socket, portOf that of a machine.
func switchIn(dir string) string       { return filepath.Join(dir, "switch") }
func portOf(dir string, h host) string { return filepath.Join(dir, h.name+".net") }

// macOf is made of the address's last byte.
func macOf(h host) string {
	var last int
	_, _ = fmt.Sscan(h.address[strings.LastIndex(h.address, ".")+1:], &last) // digits
	return fmt.Sprintf("52:54:00:77:01:%02x", last)
}

// connect connects the machines of a test until it ends.
func connect(t *testing.T, dir string, hosts []host) {
	t.Helper()
	in, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: switchIn(dir), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close() })
	e := ethernet{ports: map[string]chan []byte{}, seen: map[[6]byte]string{}}
	for _, h := range hosts {
		frames := make(chan []byte, 512)
		e.ports[portOf(dir, h)] = frames
		go deliver(portOf(dir, h), frames)
	}
	go e.forward(in)
}

// forward ends when its socket is closed.
func (e ethernet) forward(in *net.UnixConn) {
	defer func() {
		for _, frames := range e.ports {
			close(frames)
		}
	}()
	buffer := make([]byte, 1<<17)
	for {
		n, from, err := in.ReadFromUnix(buffer)
		if err != nil {
			return
		}
		if n < 14 || from == nil {
			continue
		}
		frame := bytes.Clone(buffer[:n])
		e.seen[[6]byte(frame[6:12])] = from.Name
		to := e.seen[[6]byte(frame[:6])] // none for groups
		for port, frames := range e.ports {
			if port == from.Name || to != "" && port != to {
				continue
			}
			select {
			case frames <- frame:
			default:
			}
		}
	}
}

// deliver writes frames to a machine's socket, which is not there while the machine is off.
func deliver(port string, frames <-chan []byte) {
	var out *net.UnixConn
	for frame := range frames {
		if out == nil {
			var err error
			if out, err = net.DialUnix("unixgram", nil, &net.UnixAddr{Name: port, Net: "unixgram"}); err != nil {
				out = nil
				continue
			}
		}
		if _, err := out.Write(frame); err != nil {
			_ = out.Close() // for a machine that is on again
			out = nil
		}
	}
	if out != nil {
		_ = out.Close()
	}
}

// TestEthernet checks the machines' network without machines: what is for one reaches that one, what is for all reaches
// all, and one that reads nothing keeps nobody waiting.
func TestEthernet(t *testing.T) {
	dir := t.TempDir()
	hosts := []host{{name: "a", address: "10.77.0.1"}, {name: "b", address: "10.77.0.2"}, {name: "c", address: "10.77.0.113"}, {name: "off", address: "10.77.0.4"}}
	var err error
	connect(t, dir, hosts)
	cards := map[string]*net.UnixConn{}
	macs := map[string]net.HardwareAddr{"all": {0xff, 0xff, 0xff, 0xff, 0xff, 0xff}}
	for _, h := range hosts[:3] {
		if cards[h.name], err = net.ListenUnixgram("unixgram", &net.UnixAddr{Name: portOf(dir, h), Net: "unixgram"}); err != nil {
			t.Fatal(err)
		}
		defer cards[h.name].Close()
		if macs[h.name], err = net.ParseMAC(macOf(h)); err != nil {
			t.Fatal(err)
		}
	}
	send := func(from, to, text string) {
		t.Helper()
		frame := append(append(append([]byte{}, macs[to]...), macs[from]...), text...)
		if _, err := cards[from].WriteToUnix(frame, &net.UnixAddr{Name: switchIn(dir), Net: "unixgram"}); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(name, want string) {
		t.Helper()
		frame := make([]byte, 1<<17)
		_ = cards[name].SetReadDeadline(time.Now().Add(10 * time.Second))
		n, err := cards[name].Read(frame)
		if err != nil || n < 12 || string(frame[12:n]) != want {
			t.Fatalf("%s got %q, %v, want %q", name, frame[:n], err, want)
		}
	}
	send("a", "all", "who has b")
	expect("b", "who has b")
	expect("c", "who has b")
	send("b", "a", "b is here")
	expect("a", "b is here")
	send("c", "all", "and c")
	expect("a", "and c")
	expect("b", "and c") // nothing of b's answer before it

	for range 2000 {
		send("a", "c", strings.Repeat("to c, which does not read", 40))
	}
	send("a", "b", "at once")
	expect("b", "at once")

	// One that is off for a while. What comes then is lost, and perhaps one frame more.
	_ = cards["b"].Close()
	if err := os.Remove(portOf(dir, hosts[1])); err != nil {
		t.Fatal(err)
	}
	send("a", "b", "lost")
	if cards["b"], err = net.ListenUnixgram("unixgram", &net.UnixAddr{Name: portOf(dir, hosts[1]), Net: "unixgram"}); err != nil {
		t.Fatal(err)
	}
	defer cards["b"].Close()
	send("a", "b", "lost")
	time.Sleep(100 * time.Millisecond)
	send("a", "b", "back")
	for frame, n := make([]byte, 1<<17), 0; !strings.HasSuffix(string(frame[:n]), "back"); {
		_ = cards["b"].SetReadDeadline(time.Now().Add(10 * time.Second))
		if n, err = cards["b"].Read(frame); err != nil {
			t.Fatal(err)
		}
	}
}
