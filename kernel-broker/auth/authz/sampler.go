// SPDX-License-Identifier: Apache-2.0

package authz

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/limit"
)

// How much is recorded of what changes nothing, of each who causes it: of reads,
// and apart from them of refusals, so that nobody hides behind many of the one
// what was refused to him. In a day that is some 40 MB of each; what one who asks
// all the time does besides is counted.
var (
	readRate    = limit.Rate{PerSecond: 1, Burst: 200}
	refusalRate = limit.Rate{PerSecond: 1, Burst: 100}
)

// Over the network that bounds nothing: root on a node is any user to MUNGE, and
// an IPv6 network is any number of addresses. So all at one address, or all
// strangers of one network, have a bound together, and so has the network.
//
// In a day that is no more than 612,300 reads and as many refusals, whoever comes
// and as whom: some 275 MB of each at 450 bytes, and 1.5 GB were all of them made
// as long as a record gets, 2.5 kB.
const (
	// hostTimes of what one has at once are for all at his address, and so many a
	// second. A login node has many users, but each asks now and then: 2,000 reads
	// at once and 345,600 a day are more than they make in normal work. Its rate is
	// no ten times one's, for that alone would be the day of all.
	hostTimes     = 10
	hostPerSecond = 4
)

var (
	networkRate = limit.Rate{PerSecond: 6, Burst: 5000}

	// When that is used up, who has had little for a while comes before those who
	// had much: his first few have a rate of their own. Of one network they are
	// fewer than of as many others, for they may all be one's.
	firstsRate         = limit.Rate{PerSecond: 1, Burst: 2500}
	firstInNetworkRate = limit.Rate{PerSecond: 1. / 60, Burst: 30}
	firstRate          = limit.Rate{PerSecond: 1. / 600, Burst: 3}
)

// sumPause lies between two records of what was left out in all.
const sumPause = time.Minute

// source is whose an event is: by whom it is counted, and from where he came over
// the network, if he did.
type source struct{ who, host, network string }

// sieve lets through what may be recorded, and counts the rest. Safe for
// concurrent use. It does not grow with the number of those who come.
type sieve struct {
	rates                       *limit.Rates // of each
	hosts, network              *limit.Rates // of those over the network
	firstOfHost, firstInNetwork *limit.Rates
	firsts                      *limit.Rates

	mu     sync.Mutex
	lost   map[string]uint64
	others uint64 // of all for whom there is no room in lost
}

func newSieve(r limit.Rate, now func() time.Time) *sieve {
	of := func(r limit.Rate) *limit.Rates { return limit.NewRates(r, limit.DefaultKeep, now) }
	return &sieve{rates: of(r), hosts: of(limit.Rate{PerSecond: hostPerSecond, Burst: hostTimes * r.Burst}), network: of(networkRate),
		firstOfHost: of(firstRate), firstInNetwork: of(firstInNetworkRate), firsts: of(firstsRate), lost: map[string]uint64{}}
}

// take reports whether an event may be recorded, and how many of the same one's
// were not before it. Without room none may.
func (s *sieve) take(from source, room bool) (passed bool, before uint64) {
	if !room || !s.passes(from) {
		s.miss(from.who, 1)
		return false, 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	before = s.lost[from.who]
	delete(s.lost, from.who)
	return true, before
}

// passes asks for what is for all first, which lets through fewer than can be
// counted one by one: nobody finds no room for his own count.
func (s *sieve) passes(from source) bool {
	own := share{s.rates, from.who}
	if from.host == "" {
		return takeAll(own)
	}
	wider := from.host
	if from.who == from.host {
		wider = from.network
	}
	return takeAll(share{s.network, ""}, share{s.hosts, wider}, own) ||
		takeAll(share{s.firsts, ""}, share{s.firstInNetwork, from.network}, share{s.firstOfHost, from.host}, own)
}

// share is what one has of something.
type share struct {
	rates *limit.Rates
	who   string
}

// takeAll takes all or nothing.
func takeAll(shares ...share) bool {
	for i, s := range shares {
		if s.rates.Take(s.who) == 0 {
			continue
		}
		for _, taken := range shares[:i] {
			taken.rates.GiveBack(taken.who)
		}
		return false
	}
	return true
}

// miss counts what is not on record.
func (s *sieve) miss(who string, n uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, has := s.lost[who]; !has && len(s.lost) >= limit.DefaultKeep {
		s.others += n
		return
	}
	s.lost[who] += n
}

// all returns what is counted and begins anew.
func (s *sieve) all() (lost map[string]uint64, others uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	lost, others = s.lost, s.others
	s.lost, s.others = map[string]uint64{}, 0
	return lost, others
}

// sumOf says in words of whom how many were left out.
func sumOf(lost map[string]uint64, others uint64) (total uint64, words string) {
	total = others
	names := make([]string, 0, len(lost))
	for who, n := range lost {
		total += n
		names = append(names, who)
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(lost[b], lost[a]), cmp.Compare(a, b))
	})
	var told []string
	for _, who := range names[:min(len(names), mostNamed)] {
		told = append(told, fmt.Sprintf("%d of %s", lost[who], who))
	}
	words = strings.Join(told, ", ")
	if rest := len(names) - len(told); rest > 0 || others > 0 {
		words += fmt.Sprintf(", the rest of %d or more others", max(rest, 1))
	}
	return total, strings.TrimPrefix(words, ", ")
}
