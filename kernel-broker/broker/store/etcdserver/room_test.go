// SPDX-License-Identifier: Apache-2.0

package etcdserver

import "testing"

func TestRoom(t *testing.T) {
	r := room{quota: 1600}
	for i, c := range []struct {
		used, revision, to int64
	}{
		{used: 1000, revision: 5},          // nothing is known of what came before
		{used: 300, revision: 9},           // below a quarter
		{used: 400, revision: 20, to: 9},   // what came since the look before stays
		{used: 350, revision: 21},          // what is left
		{used: 449, revision: 30},          // it has not grown by a sixteenth
		{used: 450, revision: 40, to: 30},  // it has
		{used: 1500, revision: 50},         // so much is no history
		{used: 1599, revision: 60},         //
		{used: 1600, revision: 70, to: 60}, //
	} {
		if to := r.look(c.used, c.revision); to != c.to {
			t.Errorf("look %d: drops before %d, not %d", i, to, c.to)
		}
	}
}
