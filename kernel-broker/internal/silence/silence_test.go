// SPDX-License-Identifier: Apache-2.0

package silence

import (
	"testing"
	"testing/synctest"
	"time"
)

func silent(w *Watch) bool {
	synctest.Wait()
	select {
	case <-w.Silent():
		return true
	default:
		return false
	}
}

func TestSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := 10 * time.Second
		w := New(func() time.Duration { return limit })
		defer w.Stop()
		for range 20 {
			w.Wait()
			time.Sleep(9 * time.Second)
			w.Heard()
		}
		if silent(w) {
			t.Error("a peer that speaks is silent")
		}
		time.Sleep(time.Hour)
		if silent(w) {
			t.Error("a peer is silent while nobody listens")
		}
		limit = time.Minute
		w.Wait()
		time.Sleep(50 * time.Second)
		if silent(w) {
			t.Error("silent before the limit that holds now")
		}
		time.Sleep(12 * time.Second)
		if silent(w) {
			t.Error("silent without a second look")
		}
		w.Heard()
		w.Wait()
		time.Sleep(62 * time.Second)
		if silent(w) {
			t.Error("silent at the first look at another wait")
		}
		time.Sleep(10 * time.Second)
		if !silent(w) {
			t.Error("not silent after twice the limit")
		}
		w.Wait() // says the same as before
		time.Sleep(time.Hour)
	})
}

func TestNoLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New(func() time.Duration { return 0 })
		w.Wait()
		time.Sleep(time.Hour)
		if silent(w) {
			t.Error("silent without a limit")
		}
		for _, ended := range []*Watch{w, New(func() time.Duration { return time.Second })} {
			ended.Stop()
			ended.Wait()
			time.Sleep(time.Hour)
			if silent(ended) {
				t.Error("silent after the end")
			}
		}
	})
}
