// SPDX-License-Identifier: Apache-2.0

package etcdserver

import "testing"

func TestRoom(t *testing.T) {
	r := compaction{quota: 1600}
	for i, c := range []struct {
		used, revision, to int64
	}{
		{used: 1000, revision: 5},          // no earlier revision is known
		{used: 300, revision: 9},           // below a quarter
		{used: 400, revision: 20, to: 9},   // writes since the previous check stay
		{used: 350, revision: 21},          // the remaining history
		{used: 449, revision: 30},          // it has not grown by a sixteenth
		{used: 450, revision: 40, to: 30},  // it has
		{used: 1500, revision: 50},         // not all of it is history
		{used: 1599, revision: 60},         //
		{used: 1600, revision: 70, to: 60}, //
		{used: 1590, revision: 71},         // freed, and not counted yet
		{used: 350, revision: 72},          // counted
		{used: 450, revision: 80, to: 72},  //
	} {
		if to := r.next(c.used, c.revision); to != c.to {
			t.Errorf("check %d: drops before %d, not %d", i, to, c.to)
		}
	}
}
