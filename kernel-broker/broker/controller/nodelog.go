// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"log/slog"

	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/limit"
)

// linesRate limits the log lines that one node causes. A switch and a return with a
// profiling run write twenty. Root on a node can send any number of messages, and
// journald drops lines beyond its own limit, the audit log's heads among them.
var linesRate = limit.Rate{PerSecond: 0.5, Burst: 40}

// nodeLogs limit the log lines about nodes: about their streams, and about what they
// report.
type nodeLogs struct {
	streams, reports *limit.LogSampler
}

func newNodeLogs() nodeLogs {
	return nodeLogs{limit.NewLogSampler(linesRate), limit.NewLogSampler(linesRate)}
}

// discard is the log for lines that are left out.
var discard = slog.New(slog.DiscardHandler)

// nodeLog returns the log for one line about a node, or discard. A line names the
// number of lines left out before it.
func (c *Controller) nodeLog(sampler *limit.LogSampler, node string) *slog.Logger {
	left, write := sampler.Sample(node)
	switch {
	case !write:
		return discard
	case left > 0:
		return c.log.With("node", node, "left_out", left)
	}
	return c.log.With("node", node)
}

// reportLog returns the log for a node's report, or discard for a repeated one.
func (s *Session) reportLog(news bool) *slog.Logger {
	sampler := s.controller.pace.logs.reports
	if !news {
		sampler.Skip(s.node)
		return discard
	}
	return s.controller.nodeLog(sampler, s.node)
}
