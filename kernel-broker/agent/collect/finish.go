// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/atomicfile"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
)

// DefaultBytes limits the size of a result.
const DefaultBytes = 32 << 20

// finish detaches everything, then reads, writes and releases. An error in one step does not skip the next ones.
func (r *Run) finish(why string) {
	r.wrong(r.pace.account())
	r.meter.close(r.sessions)
	end := r.pace.moment()
	for _, w := range r.sessions {
		if err := w.session.Stop(); err != nil {
			r.log.Error("collector not stopped cleanly", "collector", w.name, "error", err)
			r.partial(w.name, err.Error())
		}
	}
	r.wrong(r.pace.end(end))
	if why != "" {
		r.partial("", why)
	}
	now, err := r.snapshot()
	if err != nil {
		r.log.Error("result not whole", "error", err)
		now.Partial = append(now.Partial, profiling.Partial{Node: r.request.Node, Why: err.Error()})
	}
	r.result, r.err = r.write(now)
	r.publish(true)
	for _, w := range r.sessions {
		if err := w.session.Close(); err != nil {
			r.log.Error("collector not closed", "collector", w.name, "error", err)
		}
	}
	if err := r.server.Close(); err != nil {
		r.log.Error("live figures not closed", "error", err)
	}
	r.log.Info("profiling ended", "partial", len(r.result.Partial) > 0, "error", r.err)
}

// checkpoint writes a result in case the agent is killed.
func (r *Run) checkpoint() {
	now, err := r.snapshot()
	if err == nil {
		now.Partial = append(slices.Clone(now.Partial), profiling.Partial{Node: r.request.Node, Why: WhyDied})
		_, err = r.write(now)
	}
	if err != nil {
		r.log.Warn("result so far not written", "error", err)
	}
}

// write stores the result in the folder. If it is too large or the disk is full, it drops the lists and notes that; the
// small sums stay.
func (r *Run) write(result profiling.Result) (profiling.Result, error) {
	most := r.request.MostBytes
	if most == 0 {
		most = DefaultBytes
	}
	path := filepath.Join(r.request.Folder, kb.ResultFile)
	content, err := result.JSON()
	if err == nil && len(content) <= most {
		if err = atomicfile.Write(path, content, 0o644); err == nil {
			return result, nil
		}
	}
	why := WhyBound
	if err != nil {
		why = WhySpace
		r.log.Warn("result not written whole", "error", err)
	}
	short := Short(result, 0)
	short.Partial = append(slices.Clone(result.Partial), profiling.Partial{Node: r.request.Node, Why: why})
	content, shortErr := short.JSON()
	if shortErr == nil {
		shortErr = atomicfile.Write(path, content, 0o644)
	}
	if shortErr != nil {
		return result, fmt.Errorf("result of job %d: %w", r.request.Job, errors.Join(err, shortErr))
	}
	return short, nil
}

// Short keeps only the most important entries of a result's long lists and counts the omitted ones where possible.
func Short(result profiling.Result, most int) profiling.Result {
	result.IO = bounded(result.IO, (*profiling.IO).Bound, most)
	result.Syscalls = bounded(result.Syscalls, (*profiling.Syscalls).Bound, most)
	result.CallGraph = bounded(result.CallGraph, (*profiling.CallGraph).Bound, most)
	return result
}

func bounded[T any](found *T, bound func(*T, int), most int) *T {
	if found == nil {
		return nil
	}
	short := *found
	bound(&short, most)
	return &short
}
