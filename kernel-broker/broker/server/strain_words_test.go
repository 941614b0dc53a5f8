// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/limit"
)

// One whose calls are too many is cut once for each; the log is told once.
func TestCutsAreCounted(t *testing.T) {
	var log strings.Builder
	now := time.Unix(1e9, 0)
	cutting := newLines(&books{of: map[string]int64{}}, time.Hour, slog.New(slog.NewTextHandler(&log, nil)))
	cutting.words = limit.NewWords(wordsRate, limit.DefaultKeep, func() time.Time { return now })
	ours, theirs := net.Pipe()
	defer func() { _ = theirs.Close() }()
	_, stranger := cutting.on(ours, ours, Caller{Address: "192.0.2.7:4711"})
	for range 300 {
		stranger.line.cut("too many")
	}
	now = now.Add(10 * time.Second)
	stranger.line.cut("too many")
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	if len(lines) != 2 || !strings.HasSuffix(lines[0], "left_out=0") || !strings.HasSuffix(lines[1], "left_out=299") {
		t.Errorf("the log:\n%s", log.String())
	}
}

// The line of the log that comes next says how many were left out, of that
// address; who only knocks is not counted.
func TestRefusedHandshakesAreCounted(t *testing.T) {
	var log strings.Builder
	now := time.Unix(1e9, 0)
	n := &network{log: slog.New(slog.NewTextHandler(&log, nil)), words: limit.NewWords(wordsRate, limit.DefaultKeep, func() time.Time { return now })}
	stranger, other := Caller{Address: "192.0.2.7:4711"}, Caller{Address: "192.0.2.8:4711"}
	no := errors.New("no TLS")
	for range 300 {
		n.refused(stranger, no)
		n.refused(stranger, io.EOF)
	}
	n.refused(other, no)
	now = now.Add(10 * time.Second)
	n.refused(stranger, no)
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	if len(lines) != 3 || !strings.Contains(lines[0], "192.0.2.7") || !strings.HasSuffix(lines[0], "left_out=0") ||
		!strings.Contains(lines[1], "192.0.2.8") || !strings.HasSuffix(lines[2], "left_out=299") {
		t.Errorf("the log:\n%s", log.String())
	}
}
