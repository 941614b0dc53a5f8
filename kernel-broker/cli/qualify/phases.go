// SPDX-License-Identifier: Apache-2.0

package qualify

import (
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/stats/quantile"
)

// Boot is one boot of a round, by the timeline of its job.
type Boot struct {
	Way kb.Way
	kb.BootTimes
	// Register is from the agent's report until Slurm has the node; negative: not known.
	Register time.Duration
}

// phases of a boot, in order, with their times.
func (b Boot) phases() []kb.Phased {
	list := b.Phases()
	total := b.Total()
	if total >= 0 && b.Register >= 0 {
		total += b.Register
	}
	list[len(list)-1] = kb.Phased{Phase: "register", Took: b.Register}
	return append(list, kb.Phased{Phase: "total", Took: total})
}

// seconds are the known phases.
func (b Boot) seconds() map[string]float64 {
	known := map[string]float64{}
	for _, p := range b.phases() {
		if p.Took >= 0 {
			known[p.Phase] = p.Took.Seconds()
		}
	}
	return known
}

// boots reads the boots of a node from a job's timeline: the one to the job's kernel, and the one back. Only the last try
// of each counts.
func boots(job *api.Job, node string) (there, back Boot) {
	marks, way := map[string]time.Time{}, kb.WaySwitch
	unknown := Boot{Way: kb.WaySwitch, BootTimes: kb.UnknownTimes(), Register: -1}
	there, back = unknown, unknown
	back.Way = kb.WayReturn
	finish := func() {
		boot := Boot{Way: way, BootTimes: kb.BootTimes{
			Load: between(marks, "begin", "loaded"), Stop: between(marks, "loaded", "boot"),
			Shutdown: between(marks, "boot", "started"), Start: between(marks, "started", "booted"),
		}, Register: between(marks, "booted", "registered")}
		if way == kb.WaySwitch {
			there = boot
		} else {
			back = boot
		}
	}
	for _, e := range job.GetTimeline() {
		at, event := e.GetAt().AsTime(), e.GetEvent()
		switch {
		case e.GetNode() == "" && event == "switching":
			marks["begin"] = at
		case e.GetNode() != node:
		case event == "returning":
			marks, way = map[string]time.Time{"begin": at}, kb.WayReturn
		case event == "kexec":
			marks["boot"] = at
		case event == "reboot" || event == "reset":
			marks["boot"], way = at, kb.Way(event)
			delete(marks, "loaded")
		case event == "registered" || event == "stock" && marks["registered"].IsZero():
			// The broker may see Slurm only after the node has registered and is back.
			marks["registered"] = at
			finish()
		case event == "loaded" || event == "started" || event == "booted":
			marks[event] = at
		}
	}
	return there, back
}

func between(marks map[string]time.Time, from, to string) time.Duration {
	a, b := marks[from], marks[to]
	if a.IsZero() || b.Before(a) {
		return -1
	}
	return b.Sub(a)
}

// Summary is one phase of all rounds.
type Summary struct {
	Way    kb.Way  `json:"way"`
	Phase  string  `json:"phase"`
	Count  int     `json:"count"`
	Median float64 `json:"median_seconds"`
	P95    float64 `json:"p95_seconds"`
	Most   float64 `json:"most_seconds"`
}

// summarise gives each phase of each way that was seen.
func summarise(rounds []Round) []Summary {
	var list []Summary
	for _, way := range []kb.Way{kb.WaySwitch, kb.WayReturn, kb.WayReboot, kb.WayReset} {
		var phases []kb.Phased
		times := map[string][]time.Duration{}
		for _, r := range rounds {
			for _, boot := range []Boot{r.there, r.back} {
				if boot.Way != way {
					continue
				}
				phases = boot.phases()
				for _, p := range phases {
					if p.Took >= 0 {
						times[p.Phase] = append(times[p.Phase], p.Took)
					}
				}
			}
		}
		for _, p := range phases {
			if seen := times[p.Phase]; len(seen) > 0 {
				list = append(list, Summary{Way: way, Phase: p.Phase, Count: len(seen), Median: quantile.NearestRank(seen, 0.5).Seconds(),
					P95: quantile.NearestRank(seen, 0.95).Seconds(), Most: quantile.NearestRank(seen, 1).Seconds()})
			}
		}
	}
	return list
}
