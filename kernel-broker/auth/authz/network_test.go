// SPDX-License-Identifier: Apache-2.0

package authz

import (
	"fmt"
	"testing"
	"time"
)

// refusedTo is a refusal of one who came over the network: a stranger, or one
// whom MUNGE calls so.
func refusedTo(who, host, network string) Decision {
	if who == "" {
		who = host
	}
	return Decision{Asker: Asker{Holder: who, Host: host, Network: network}, Unknown: who == host}
}

// another is one who has nothing to do with whoever floods the record.
var another = refusedTo("", "198.51.100.1", "198.51.100.0/24")

// stillRecorded fails unless another's one refusal is on record by itself.
func stillRecorded(t *testing.T, g *Guard, r *tape, d Decision) {
	t.Helper()
	n := len(r.entries)
	whole(t, g, d, 1)
	if len(r.entries) != n+1 || r.entries[n].Unrecorded != 0 {
		t.Errorf("after %d records the refusal of %s is not on record", n, d.source().who)
	}
}

// all is how many events are on record or counted.
func all(g *Guard, r *tape) (events uint64) {
	for _, e := range r.entries {
		if e.Kind == KindDecision {
			events++
		}
		events += e.Unrecorded
	}
	for _, s := range []*sieve{g.reads, g.refusals} {
		lost, others := s.all()
		total, _ := sumOf(lost, others)
		events += total
	}
	return events
}

// Root on a node may be any uid, and has no more of the record by it; those who
// are these users elsewhere lose nothing.
func TestManyUsersAtOneAddress(t *testing.T) {
	const uids, times = 1000, 5
	for what, c := range map[string]struct {
		allowed bool
		burst   int
	}{"refusals": {false, refusalRate.Burst}, "reads": {true, readRate.Burst}} {
		t.Run(what, func(t *testing.T) {
			g, r, _ := sieved(t)
			for uid := range uids {
				d := refusedTo(fmt.Sprint("uid ", uid), "192.0.2.7", "192.0.2.0/24")
				d.Allowed = c.allowed
				whole(t, g, d, times)
			}
			if most := hostTimes*c.burst + firstRate.Burst; len(r.entries) > most || len(r.entries) < most/2 {
				t.Errorf("%d records of %d, want up to %d", len(r.entries), uids*times, most)
			}
			stillRecorded(t, g, r, another)
			stillRecorded(t, g, r, refusedTo("uid 7", "192.0.2.8", "192.0.2.0/24"))
			stillRecorded(t, g, r, Decision{Asker: Asker{UID: 7}, Allowed: c.allowed}) // on the broker's host
			if n := all(g, r); n != uids*times+3 {
				t.Errorf("%d events are on record or counted", n)
			}
		})
	}
}

// The users of a login node who work hide nothing of each other.
func TestALoginNodeAtWork(t *testing.T) {
	g, r, now := sieved(t)
	const users, each = 200, 30
	for n := range each {
		for uid := range users {
			d := refusedTo(fmt.Sprint("uid ", uid), "192.0.2.7", "192.0.2.0/24")
			d.Allowed = true
			whole(t, g, d, 1)
		}
		*now = now.Add(time.Minute)
		if n == 0 && len(r.entries) != users {
			t.Fatalf("%d records", len(r.entries))
		}
	}
	if len(r.entries) != users*each {
		t.Errorf("%d records of %d", len(r.entries), users*each)
	}
}

// Whoever has a network has many addresses: of one they are bounded together, of
// many by what is for all, and others' first refusals come before their further
// ones.
func TestManyAddresses(t *testing.T) {
	const hosts, times = 12_000, 3
	atOnce := networkRate.Burst + firstsRate.Burst
	for what, c := range map[string]struct {
		from func(n int) Decision
		most int
	}{
		"of a /48": {func(n int) Decision {
			return refusedTo("", fmt.Sprintf("2001:db8:0:%x::/64", n), "2001:db8::/48")
		}, hostTimes*refusalRate.Burst + firstInNetworkRate.Burst},
		"of an IPv4 network": {func(n int) Decision {
			return refusedTo("", fmt.Sprintf("10.0.%d.%d", n/256, n%256), fmt.Sprintf("10.0.%d.0/24", n/256))
		}, networkRate.Burst + (hosts/256+1)*firstInNetworkRate.Burst},
		"of many networks": {func(n int) Decision {
			return refusedTo("", fmt.Sprintf("2001:db8:%x::/64", n), fmt.Sprintf("2001:db8:%x::/48", n))
		}, atOnce},
		"as many users": {func(n int) Decision {
			return refusedTo(fmt.Sprint("uid ", n), fmt.Sprintf("2001:db8:0:%x::/64", n), "2001:db8::/48")
		}, networkRate.Burst + firstInNetworkRate.Burst},
	} {
		t.Run(what, func(t *testing.T) {
			g, r, now := sieved(t)
			for n := range hosts {
				whole(t, g, c.from(n), times)
			}
			if n := len(r.entries); n > c.most || n < c.most/2 {
				t.Errorf("%d records, want up to %d", n, c.most)
			}
			if c.most == atOnce {
				// Who has thousands of networks takes others' precedence, until a while later.
				*now = now.Add(time.Second)
			}
			stillRecorded(t, g, r, another)
			if n := all(g, r); n != hosts*times+1 {
				t.Errorf("%d events are on record or counted", n)
			}
		})
	}
}

// A neighbour's first refusal is on record, whatever the others of his network do.
func TestANeighboursFirst(t *testing.T) {
	g, r, _ := sieved(t)
	for n := range 5 {
		for uid := range 1000 {
			whole(t, g, refusedTo(fmt.Sprint("uid ", uid), fmt.Sprintf("192.0.2.%d", n), "192.0.2.0/24"), 10)
			whole(t, g, refusedTo(fmt.Sprint("uid ", uid), fmt.Sprintf("203.0.113.%d", n), "203.0.113.0/24"), 10)
		}
	}
	stillRecorded(t, g, r, refusedTo("", "192.0.2.99", "192.0.2.0/24"))
	stillRecorded(t, g, r, refusedTo("uid 7", "203.0.113.99", "203.0.113.0/24"))
}

// What the record grows by has a bound, whoever comes over the network and as
// whom; the figure for a day is the one that is told to administrators.
func TestGrowthHasABound(t *testing.T) {
	bound := func(d time.Duration) int {
		return int((networkRate.PerSecond+firstsRate.PerSecond)*d.Seconds()) + networkRate.Burst + firstsRate.Burst
	}
	if day := bound(24 * time.Hour); day != 612_300 {
		t.Errorf("%d records in a day", day)
	}
	g, r, now := sieved(t)
	const steps, step = 12, 10 * time.Minute
	for n := range steps * 8000 { // more than may be
		if n > 0 && n%8000 == 0 {
			*now = now.Add(step)
		}
		whole(t, g, refusedTo(fmt.Sprint("uid ", n), fmt.Sprintf("2001:db8:%x::/64", n%50_000), fmt.Sprintf("2001:db8:%x::/48", n%50_000)), 1)
	}
	refused := 0
	for _, e := range r.entries {
		if e.Kind == KindDecision {
			refused++
		}
	}
	if most := bound((steps - 1) * step); refused > most || refused < most-firstsRate.Burst {
		t.Errorf("%d records, want up to %d", refused, most)
	}
}
