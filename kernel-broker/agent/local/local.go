// SPDX-License-Identifier: Apache-2.0

// Package local is the agent's socket for programs on the same node: one JSON line asks, one JSON line answers, then the
// connection ends. It does not import gRPC, so that a hook that uses it starts in milliseconds.
package local

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/strictjson"
)

// The operations.
const (
	// JobEnding asks the broker whether the node is kept for another job.
	JobEnding = "job_ending"
	// Status returns the agent's view of the node.
	Status = "status"
	// WaitReady answers when slurmd may be started.
	WaitReady = "wait_ready"
)

// Bounds of one exchange.
const (
	maxLine = 64 << 10
	// JobEndingTimeout limits the wait for the broker: a little less than the epilog's 3 s, so that the epilog gets the
	// reason.
	JobEndingTimeout = 2800 * time.Millisecond
)

// Request is one question.
type Request struct {
	Op        string `json:"op"`
	Job       uint32 `json:"job,omitempty"`
	TimeoutMS int64  `json:"timeout_ms,omitempty"`
}

// Answer to a request. Error is empty on success.
type Answer struct {
	Kept  bool   `json:"kept"`
	Ready bool   `json:"ready,omitempty"`
	Error string `json:"error"`
	// Status is the answer to the Status operation.
	Status *NodeStatus `json:"status,omitempty"`
}

// NodeStatus is how the agent sees the node.
type NodeStatus struct {
	Node          string    `json:"node"`
	Connected     bool      `json:"connected"`
	Fresh         bool      `json:"fresh"`
	Generation    uint64    `json:"generation"`
	Profile       string    `json:"profile"`
	Version       uint32    `json:"version"`
	Jobs          []uint32  `json:"jobs"`
	Attested      bool      `json:"attested"`
	Release       string    `json:"release"`
	BuildID       string    `json:"build_id"`
	BootID        string    `json:"boot_id"`
	Switch        string    `json:"switch"`
	SwitchTo      string    `json:"switch_to"`
	Cause         string    `json:"cause"`
	SlurmdRunning bool      `json:"slurmd_running"`
	SlurmdAllowed bool      `json:"slurmd_allowed"`
	SlurmdStart   uint64    `json:"slurmd_start"`
	Ready         bool      `json:"ready"`
	Doing         string    `json:"doing"`
	Since         time.Time `json:"since"`
	// Configuration is the digest of the file that the agent started with.
	Configuration string `json:"configuration"`
}

// ParseRequest reads one request line.
func ParseRequest(line []byte) (Request, error) {
	var r Request
	if err := strictjson.Decode(line, &r); err != nil {
		return Request{}, fmt.Errorf("request: %w: %w", kb.ErrInvalid, err)
	}
	switch {
	case r.Op != JobEnding && r.Op != Status && r.Op != WaitReady:
		return Request{}, fmt.Errorf("request: operation %q: %w", r.Op, kb.ErrInvalid)
	case r.Op == JobEnding && r.Job == 0:
		return Request{}, fmt.Errorf("request: no job: %w", kb.ErrInvalid)
	case r.TimeoutMS < 0:
		return Request{}, fmt.Errorf("request: timeout %d ms: %w", r.TimeoutMS, kb.ErrInvalid)
	}
	return r, nil
}

// Ask sends one request to the socket and waits for the answer until the context ends.
func Ask(ctx context.Context, socket string, r Request) (Answer, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", socket)
	if err != nil {
		return Answer{}, fmt.Errorf("agent: %w", err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	line, err := json.Marshal(r)
	if err != nil {
		return Answer{}, fmt.Errorf("agent: %w", err)
	}
	// A refused client gets an answer at once, possibly before it asks.
	_, unasked := conn.Write(append(line, '\n'))
	var a Answer
	raw, err := readLine(conn)
	switch {
	case err == nil:
		err = json.Unmarshal(raw, &a)
	case unasked != nil:
		err = unasked
	}
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	if err != nil {
		return Answer{}, fmt.Errorf("agent: %w", err)
	}
	return a, nil
}

func readLine(conn net.Conn) ([]byte, error) {
	reader := bufio.NewReaderSize(conn, maxLine)
	return reader.ReadSlice('\n')
}
