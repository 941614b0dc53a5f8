// SPDX-License-Identifier: Apache-2.0

package kernelbroker

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"time"
)

// Limits of a row of the hardware ledger.
const (
	maxSamples     = 64
	maxFailedNodes = 8
	maxTryCause    = 256
)

// LedgerRow counts the boots of one kernel in one way on one kind of hardware.
type LedgerRow struct {
	Hardware  Hardware `json:"hardware"`
	Kernel    Ref      `json:"kernel"`
	Way       Way      `json:"way"`
	Tries     uint64   `json:"tries"`
	Successes uint64   `json:"successes"`
	// Streak is the number of failures since the last success, and Failed the nodes that had them.
	Streak uint32    `json:"streak,omitempty"`
	Failed []string  `json:"failed,omitempty"`
	First  time.Time `json:"first"`
	Last   time.Time `json:"last"`
	// LastFailure is the newest one.
	LastFailure *TryFailure `json:"last_failure,omitempty"`
	// Samples are the phases of the newest successes in milliseconds: load, stop, shutdown, start; -1: not known.
	Samples [][4]int64 `json:"samples,omitempty"`
}

// TryFailure is a boot that failed.
type TryFailure struct {
	Node  string    `json:"node"`
	Cause string    `json:"cause"`
	At    time.Time `json:"at"`
}

// Row returns an empty row for a try.
func (t Try) Row() *LedgerRow {
	return &LedgerRow{Hardware: t.Hardware, Kernel: t.Kernel, Way: t.Way, First: t.At}
}

// ID tells rows apart.
func (r *LedgerRow) ID() string {
	text, err := json.Marshal([]any{r.Hardware, r.Kernel.String(), r.Way})
	if err != nil {
		panic(err) // texts always can be
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:12])
}

// Add counts a try.
func (r *LedgerRow) Add(t Try) {
	r.Tries++
	r.Last = t.At
	if !t.OK {
		r.Streak++
		if !slices.Contains(r.Failed, t.Node) && len(r.Failed) < maxFailedNodes {
			r.Failed = append(slices.Clone(r.Failed), t.Node)
		}
		r.LastFailure = &TryFailure{Node: t.Node, Cause: t.Cause[:min(len(t.Cause), maxTryCause)], At: t.At}
		return
	}
	r.Successes++
	r.Streak, r.Failed = 0, nil
	var sample [4]int64
	for i, d := range []time.Duration{t.Times.Load, t.Times.Stop, t.Times.Shutdown, t.Times.Start} {
		if sample[i] = d.Milliseconds(); d < 0 {
			sample[i] = -1
		}
	}
	r.Samples = append(slices.Clone(r.Samples), sample)
	r.Samples = r.Samples[max(0, len(r.Samples)-maxSamples):]
}

// Times are the samples.
func (r *LedgerRow) Times() []BootTimes {
	times := make([]BootTimes, len(r.Samples))
	for i, s := range r.Samples {
		at := func(j int) time.Duration {
			if s[j] < 0 {
				return -1
			}
			return time.Duration(s[j]) * time.Millisecond
		}
		times[i] = BootTimes{Load: at(0), Stop: at(1), Shutdown: at(2), Start: at(3)}
	}
	return times
}

// Clone returns a deep copy.
func (r *LedgerRow) Clone() *LedgerRow {
	c := *r
	c.Failed, c.Samples, c.LastFailure = slices.Clone(r.Failed), slices.Clone(r.Samples), copied(r.LastFailure)
	return &c
}
