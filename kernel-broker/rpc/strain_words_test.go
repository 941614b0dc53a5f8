package rpc

import (
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/limit"
)

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
