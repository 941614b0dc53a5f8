// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"log/slog"

	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/limit"
)

// linesRate is of lines in the log that one node causes: a switch there and back
// with a profiling run has twenty. Whoever is root on a node sends messages
// without end, and journald drops what is too much, the audit log's heads with it.
var linesRate = limit.Rate{PerSecond: 0.5, Burst: 40}

// words say what of the nodes is in the log: their streams, which the broker sees
// by itself, and what they say, each with lines of its own.
type words struct {
	streams, reports *limit.LogSampler
}

func newWords() words {
	return words{limit.NewLogSampler(linesRate), limit.NewLogSampler(linesRate)}
}

// silent is the log for what is left out of it.
var silent = slog.New(slog.DiscardHandler)

// nodeLog is the log for one line on a node, if it has one left. The next line
// that it has tells how many it had not.
func (c *Controller) nodeLog(words *limit.LogSampler, node string) *slog.Logger {
	left, say := words.Sample(node)
	switch {
	case !say:
		return silent
	case left > 0:
		return c.log.With("node", node, "left_out", left)
	}
	return c.log.With("node", node)
}

// reportLog is the log for what a node says, unless it has said that before.
func (s *Session) reportLog(news bool) *slog.Logger {
	words := s.controller.pace.words.reports
	if !news {
		words.Skip(s.node)
		return silent
	}
	return s.controller.nodeLog(words, s.node)
}
