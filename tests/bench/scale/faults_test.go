// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
)

// A wire that is cut passes nothing, in a connection that was open and in a new one; once mended it passes what it was given.
func TestWire(t *testing.T) {
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer echo.Close()
	heard := make(chan struct{}, 8)
	go func() {
		for {
			conn, err := echo.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				for one := make([]byte, 1); ; {
					if _, err := io.ReadFull(conn, one); err != nil {
						return
					}
					heard <- struct{}{}
					if _, err := conn.Write(one); err != nil {
						return
					}
				}
			}()
		}
	}()
	w, err := newWire("http://" + echo.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	dial := func() net.Conn {
		conn, err := net.Dial("tcp", strings.TrimPrefix(w.endpoint(), "http://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	say := func(conn net.Conn) {
		if _, err := conn.Write([]byte{1}); err != nil {
			t.Fatal(err)
		}
	}
	hear := func(conn net.Conn) {
		if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		<-heard
	}
	old := dial()
	say(old)
	hear(old)
	w.cut()
	young := dial()
	say(old)
	say(young)
	if len(heard) > 0 {
		t.Error("it passes what came after the cut")
	}
	w.mend()
	hear(old)
	hear(young)
}

// A message of an older broker counts, whether the agent took or refused it.
func TestMessagesOfAnOlderBroker(t *testing.T) {
	var e epochs
	for _, epoch := range []uint64{1, 1, 2, 1, 2} {
		e.note(epoch)
	}
	log := slog.New(&e)
	log.Warn("stream to the broker ended", "error", "a message of the broker's epoch 1 is refused, another broker acts since 2: unavailable")
	log.Warn("stream to the broker ended", "error", "connection refused")
	if newest, since, late := e.now(); newest != 2 || since.IsZero() || late != 2 {
		t.Errorf("newest %d, %d late", newest, late)
	}
}

// What a broker reads, and what it does while it acts, is not noted.
func TestCommandsOfTheOld(t *testing.T) {
	s := newSlurmctld("root(0)", []string{"n00001"})
	h := &host{}
	run := h.run(s)
	drain := func() {
		if _, err := run("scontrol", []string{"update", "nodename=n00001", "state=drain", "reason=x"}); err != nil {
			t.Error(err)
		}
	}
	drain()
	h.watch(true)
	if _, err := run("scontrol", []string{"--oneliner", "--all", "show", "node"}); err != nil {
		t.Error(err)
	}
	drain()
	if commands := h.watch(false); len(commands) != 1 || !strings.Contains(commands[0], "state=drain") {
		t.Errorf("%q", commands)
	}
	drain()
	if commands := h.watch(false); len(commands) != 0 {
		t.Errorf("%q", commands)
	}
}

func TestSpread(t *testing.T) {
	var samples []float64
	for i := range 30 {
		samples = append(samples, float64(30-i))
	}
	if got := spread(samples); got != "15.5 / 29.0 / 30.0" {
		t.Error(got)
	}
	r := &FaultResult{Nodes: 200, Machine: "2 CPUs", Kinds: []Faults{{Kind: "kill", Times: 30, Acts: samples, Work: Work{Jobs: 3, Lost: 1, Examples: []string{"job 7 lost"}}}}}
	var out strings.Builder
	if err := r.Print(&out); err != nil || !strings.Contains(out.String(), "15.5 / 29.0 / 30.0") || !strings.Contains(out.String(), "job 7 lost") {
		t.Errorf("%v %s", err, out.String())
	}
}
