package guard

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/limit"
)

// How much is recorded of what changes nothing, of each who causes it: of reads,
// and apart from them of refusals, so that nobody hides behind many of the one
// what was refused to him. In a day that is some 40 MB of each; what one who asks
// all the time does besides is counted.
var (
	readRate    = limit.Rate{PerSecond: 1, Burst: 200}
	refusalRate = limit.Rate{PerSecond: 1, Burst: 100}
)

// sumPause lies between two records of what was left out in all.
const sumPause = time.Minute

// sieve lets through what may be recorded, and counts the rest. Safe for
// concurrent use. It does not grow with the number of those who come.
type sieve struct {
	rates *limit.Rates

	mu     sync.Mutex
	lost   map[string]uint64
	others uint64 // of all for whom there is no room in lost
}

func newSieve(r limit.Rate, now func() time.Time) *sieve {
	return &sieve{rates: limit.NewRates(r, limit.DefaultKeep, now), lost: map[string]uint64{}}
}

// take reports whether an event of who's may be recorded, and how many were not
// before it. Without room none may.
func (s *sieve) take(who string, room bool) (passed bool, before uint64) {
	if !room || s.rates.Take(who) > 0 {
		s.miss(who, 1)
		return false, 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	before = s.lost[who]
	delete(s.lost, who)
	return true, before
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

// mostNamed of those whose events were left out have their names in the record.
const mostNamed = 5

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
