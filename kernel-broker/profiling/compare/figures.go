// SPDX-License-Identifier: Apache-2.0

package compare

import (
	"slices"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
)

// figure names one value of a run.
type figure struct{ group, name, unit string }

// Units.
const (
	unitSeconds = "s"
	unitShare   = "share"
	unitCount   = "count"
	unitBytes   = "B"
)

// values gathers each figure over the runs; order lists the figures as they
// first came, after those given.
func values(runs []profiling.Result, order []figure) (map[figure][]float64, []figure) {
	all := map[figure][]float64{}
	for _, r := range runs {
		figures(r, func(f figure, v float64) {
			if !slices.Contains(order, f) {
				order = append(order, f)
			}
			all[f] = append(all[f], v)
		})
	}
	return all, order
}

const nanosecond = float64(time.Nanosecond) / float64(time.Second)

// figures adds every value of a run.
func figures(r profiling.Result, add func(figure, float64)) {
	job(r, add)
	if r.Noise != nil {
		add(figure{"noise", "taken by others", unitShare}, 1-r.Noise.Left())
		if _, worst, ok := r.Noise.Worst(); ok {
			add(figure{"noise", "worst event", unitSeconds}, float64(worst.MostNS)*nanosecond)
		}
	}
	if r.IO != nil {
		files := r.IO.Total(profiling.RegularFiles)
		add(figure{"io", "reads", unitCount}, float64(files.Read.Calls))
		add(figure{"io", "bytes read", unitBytes}, float64(files.Read.Bytes))
		add(figure{"io", "writes", unitCount}, float64(files.Write.Calls))
		add(figure{"io", "bytes written", unitBytes}, float64(files.Write.Bytes))
	}
	if r.Syscalls != nil {
		for _, c := range r.Syscalls.Calls {
			add(figure{"system calls", c.Name + ": calls", unitCount}, float64(c.Count))
			add(figure{"system calls", c.Name + ": time", unitSeconds}, float64(c.NS)*nanosecond)
			if c.Count > 0 {
				add(figure{"system calls", c.Name + ": each", unitSeconds}, float64(c.NS)*nanosecond/float64(c.Count))
			}
		}
	}
}

func job(r profiling.Result, add func(figure, float64)) {
	var all, user, system uint64
	var wall time.Duration
	for _, n := range r.Nodes {
		all, user, system = all+n.JobNS, user+n.UserNS, system+n.SystemNS
		wall = max(wall, n.End.Sub(n.Begin))
	}
	add(figure{"job", "looked at", unitSeconds}, wall.Seconds())
	add(figure{"job", "CPU time", unitSeconds}, float64(all)*nanosecond)
	add(figure{"job", "in the program", unitSeconds}, float64(user)*nanosecond)
	add(figure{"job", "in the kernel", unitSeconds}, float64(system)*nanosecond)
	if share, known := r.KernelShare(); known {
		add(figure{"job", "share of the kernel", unitShare}, share)
	}
}
