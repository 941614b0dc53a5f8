// SPDX-License-Identifier: Apache-2.0

package record

import (
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
)

func key(id kb.JobID) string { return fmt.Sprintf("jobs/%010d/%06d", id.Job, id.Restart) }

// One user's many records cost nobody else his, and the newest stays.
func TestOneUsersRecordsEvictHisOwn(t *testing.T) {
	for name, c := range map[string]struct {
		uids []uint32 // of the records, the oldest first
		keep int
		want string // indices of what goes
	}{
		"an array after two users": {[]uint32{1, 2, 3, 3, 3, 3, 3, 3}, 5, "[2 3 4]"},
		"one user":                 {[]uint32{1, 1, 1, 1}, 2, "[0 1]"},
		"equal shares, by age":     {[]uint32{1, 2, 1, 2}, 3, "[0]"},
		"two that hold most":       {[]uint32{1, 1, 1, 2, 2, 2, 3}, 4, "[0 1 3]"},
		"the newest stays":         {[]uint32{1, 2, 3}, 1, "[0 1]"},
		"room for all":             {[]uint32{1, 2}, 2, "[]"},
	} {
		var x Index
		for i, uid := range c.uids {
			x.Put(Entry{Key: fmt.Sprint(i), UID: uid})
		}
		got := x.Prunable(c.keep)
		slices.Sort(got)
		if fmt.Sprint(got) != c.want {
			t.Errorf("%s: %v go, want %s", name, got, c.want)
		}
	}
}

// Slurm begins jobs' ids anew, in the end: what was made last is the newest, whatever its id.
func TestJobIdsThatBeginAnew(t *testing.T) {
	began := time.Now()
	var x Index
	for i, job := range []uint32{67043328, 67043329, 1, 2} {
		x.Put(Entry{Key: key(kb.JobID{Job: job}), Job: kb.JobID{Job: job}, Made: began.Add(time.Duration(i) * time.Minute)})
	}
	all := func(Entry) bool { return true }
	if got := x.Newest(2, all); !slices.Equal(got, []string{key(kb.JobID{Job: 2}), key(kb.JobID{Job: 1})}) {
		t.Errorf("the newest are %v", got)
	}
	if got := x.Prunable(2); !slices.Equal(got, []string{key(kb.JobID{Job: 67043328}), key(kb.JobID{Job: 67043329})}) {
		t.Errorf("these go: %v", got)
	}
	// 7.3 is of the job that had the id before.
	for hour, restart := range []uint32{3, 0, 1} {
		x.Put(Entry{Key: key(kb.JobID{Job: 7, Restart: restart}), Made: began.Add(time.Duration(hour) * time.Hour)})
	}
	if got := x.Last("jobs/0000000007/"); got != key(kb.JobID{Job: 7, Restart: 1}) {
		t.Errorf("the newest run of job 7 is %q", got)
	}
	if got := x.Last("jobs/0000000008/"); got != "" {
		t.Errorf("the newest run of job 8 is %q", got)
	}
}

// A listing has room for so much JSON, however short the records are.
func TestAListingCountsWhatRecordsBecome(t *testing.T) {
	data, err := Encode("", &kb.Allocation{Reason: strings.Repeat("y", mostListed/2)})
	if err != nil || len(data) > mostListed/100 {
		t.Fatalf("%d bytes, %v", len(data), err)
	}
	rec := store.Record{Value: data}
	var left budget
	if err := left.take(rec); err != nil {
		t.Error(err)
	}
	if err := left.take(rec); !errors.Is(err, kb.ErrExhausted) {
		t.Errorf("twice: %v", err)
	}
	for _, value := range []string{"", "{}", string(packed)} {
		if got := length(store.Record{Value: []byte(value)}); got != len(value) {
			t.Errorf("%q has %d bytes", value, got)
		}
	}
}

func TestDamagedRecords(t *testing.T) {
	own := key(kb.JobID{Job: 7})
	jobs := Kind[kb.Allocation]{Entry: func(a *kb.Allocation) Entry { return Entry{Key: key(a.ID)} }}
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	for range mostUnpacked>>20 + 1 {
		if _, err := z.Write(bytes.Repeat([]byte(" "), 1<<20)); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	raw := make([]byte, PackFrom)
	_, _ = rand.Read(raw) // never fails
	whole, err := Encode(own, &kb.Allocation{ID: kb.JobID{Job: 7}, Reason: hex.EncodeToString(raw)})
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string][]byte{
		"a bomb": bomb.Bytes(), "cut": whole[:len(whole)/2], "only the begin": packed, "one bit": append(bytes.Clone(whole[:len(whole)-6]), make([]byte, 6)...),
	} {
		if _, err := jobs.Decode(store.Record{Key: own, Value: value}); err == nil || !strings.Contains(err.Error(), own) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What is too long to be sent is not read to its end.
func TestListingTooLong(t *testing.T) {
	var left budget
	mebibyte := store.Record{Value: make([]byte, 1<<20)}
	for range mostListed >> 20 {
		if err := left.take(mebibyte); err != nil {
			t.Fatal(err)
		}
	}
	err := left.take(mebibyte)
	if want := fmt.Sprintf("the newest %d alone", mostListed>>20); !errors.Is(err, kb.ErrExhausted) || !strings.Contains(err.Error(), want) {
		t.Errorf("beyond it: %v", err)
	}
}
