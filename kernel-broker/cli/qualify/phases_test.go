// SPDX-License-Identifier: Apache-2.0

package qualify

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
)

// timeline makes a job of pairs: an event, of the node unless it begins with -, and the seconds until it since the last.
func timeline(events ...any) *api.Job {
	job, at := &api.Job{}, time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	for i := 0; i < len(events); i += 2 {
		at = at.Add(time.Duration(events[i+1].(int)) * time.Second)
		name, node := events[i].(string), "n1"
		if name[0] == '-' {
			name, node = name[1:], ""
		}
		job.Timeline = append(job.Timeline, &api.TimelineEvent{At: timestamppb.New(at), Node: node, Event: name})
	}
	return job
}

func TestBootsOfATimeline(t *testing.T) {
	s := func(n int) time.Duration {
		if n < 0 {
			return -1
		}
		return time.Duration(n) * time.Second
	}
	boot := func(way kb.Way, load, stop, shutdown, start, register int) Boot {
		return Boot{Way: way, BootTimes: kb.BootTimes{Load: s(load), Stop: s(stop), Shutdown: s(shutdown), Start: s(start)}, Register: s(register)}
	}
	there := []any{"-accepted", 0, "-switching", 5, "fetching", 1, "loaded", 1, "kexec", 3, "started", 4, "booted", 5, "attested", 0, "registered", 6, "-ready", 1, "-running", 1, "-returning", 60}
	for name, c := range map[string]struct {
		events      []any
		there, back Boot
	}{
		"by kexec": {append(there[:len(there):len(there)], "returning", 1, "fetching", 0, "loaded", 1, "kexec", 2, "started", 3, "booted", 4, "registered", 5, "stock", 1),
			boot(kb.WaySwitch, 2, 3, 4, 5, 6), boot(kb.WayReturn, 1, 2, 3, 4, 5)},
		"by a reboot": {append(there[:len(there):len(there)], "returning", 1, "reboot", 0, "started", 30, "booted", 4, "registered", 5),
			boot(kb.WaySwitch, 2, 3, 4, 5, 6), boot(kb.WayReboot, -1, -1, 30, 4, 5)},
		"by a reset after a kexec": {append(there[:len(there):len(there)], "returning", 1, "loaded", 1, "kexec", 2, "reset", 300, "booted", 40, "registered", 5),
			boot(kb.WaySwitch, 2, 3, 4, 5, 6), boot(kb.WayReset, -1, -1, -1, -1, 5)},
		"registered unseen": {append(there[:len(there):len(there)], "returning", 1, "loaded", 1, "kexec", 2, "started", 3, "booted", 4, "stock", 5),
			boot(kb.WaySwitch, 2, 3, 4, 5, 6), boot(kb.WayReturn, 1, 2, 3, 4, 5)},
		"an older agent": {[]any{"-switching", 0, "loaded", 1, "kexec", 1, "booted", 9, "registered", 2},
			boot(kb.WaySwitch, 1, 1, -1, -1, 2), boot(kb.WayReturn, -1, -1, -1, -1, -1)},
		"nothing": {nil, boot(kb.WaySwitch, -1, -1, -1, -1, -1), boot(kb.WayReturn, -1, -1, -1, -1, -1)},
	} {
		gotThere, gotBack := boots(timeline(c.events...), "n1")
		if gotThere != c.there || gotBack != c.back {
			t.Errorf("%s: there %+v\nback %+v", name, gotThere, gotBack)
		}
	}
	if there, _ := boots(timeline(there...), "n2"); there.Total() >= 0 {
		t.Errorf("another node's events count: %+v", there)
	}
}

func TestSummarise(t *testing.T) {
	var rounds []Round
	for i := range 20 {
		r := Round{there: Boot{Way: kb.WaySwitch, BootTimes: kb.BootTimes{Shutdown: time.Duration(i+1) * time.Second}}, back: Boot{Way: kb.WayReturn, BootTimes: kb.UnknownTimes(), Register: -1}}
		if i == 19 {
			r.there.BootTimes = kb.UnknownTimes() // one that the broker did not see
		}
		rounds = append(rounds, r)
	}
	list := summarise(rounds)
	if len(list) != 6 || list[2] != (Summary{Way: kb.WaySwitch, Phase: "shutdown", Count: 19, Median: 10, P95: 19, Most: 19}) || list[5].Phase != "total" || list[5].Count != 19 {
		t.Errorf("%+v", list)
	}
}
