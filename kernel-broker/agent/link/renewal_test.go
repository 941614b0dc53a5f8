// SPDX-License-Identifier: Apache-2.0

package link

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"
)

// A bad token file does not stop renewals, and the log says how to fix it.
func TestBadTokenDoesNotBlockRenewal(t *testing.T) {
	b, other := newBroker(t, time.Hour), newBroker(t, time.Hour)
	for name, c := range map[string]struct{ text, words string }{
		"put there again":   {"", "was used for another key"},
		"of another node":   {b.token("n2").Text(), `for node \"n2\"`},
		"of another broker": {other.token("n1").Text(), "not the broker with that fingerprint"},
		"no token":          {"rubbish", "NODE.SECRET.FINGERPRINT"},
	} {
		n := newNode(t, b, t.TempDir())
		token := b.token("n1")
		n.put(token)
		now := time.Now()
		n.turn(t.Context(), now)
		first := n.serialNow()
		if c.text == "" {
			c.text = token.Text()
		}
		if err := os.WriteFile(n.options.TokenFile, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		n.turn(t.Context(), now.Add(30*time.Minute))
		if n.serialNow() != first {
			t.Errorf("%s: renewed too early", name)
		}
		b.passes(50 * time.Minute)
		n.turn(t.Context(), now.Add(50*time.Minute))
		b.passes(-50 * time.Minute)
		if n.serialNow() == first {
			t.Errorf("%s: not renewed: %s", name, n.logs.String())
		}
		logs := n.logs.String()
		for _, words := range []string{c.words, n.options.TokenFile, "kernelctl node token n1", "remove the file"} {
			if !strings.Contains(logs, words) {
				t.Errorf("%s: the log lacks %q: %s", name, words, logs)
			}
		}
		if _, err := os.Stat(n.options.TokenFile); err != nil {
			t.Errorf("%s: the file: %v", name, err)
		}
	}
}

// Each has its own pause: a renewal that fails is tried again when it is time,
// and so is the token.
func TestSeparateBackoffs(t *testing.T) {
	b := newBroker(t, time.Hour)
	n := newNode(t, b, t.TempDir())
	token := b.token("n1")
	n.put(token)
	now := time.Now()
	n.turn(t.Context(), now)
	first := n.serialNow()
	n.put(token)
	for range 10 { // the pause of the token grows
		now = now.Add(2 * maxPause)
		n.turn(t.Context(), now)
	}
	if n.enrolment.pause != maxPause || n.renewal != (retryPause{}) {
		t.Errorf("pauses %+v, %+v", n.enrolment, n.renewal)
	}
	now = now.Add(30 * time.Minute)
	b.passes(50 * time.Minute)
	b.lose = true
	n.turn(t.Context(), now)
	if n.serialNow() != first || n.renewal.pause != minPause {
		t.Fatalf("%+v: %s", n.renewal, n.logs.String())
	}
	n.turn(t.Context(), now.Add(minPause/2))
	if n.serialNow() != first {
		t.Error("asked again without a pause")
	}
	n.turn(t.Context(), now.Add(minPause))
	if n.serialNow() == first || n.renewal != (retryPause{}) {
		t.Errorf("not renewed, %+v: %s", n.renewal, n.logs.String())
	}
}

// A token whose answer was lost is still valid for its key after a renewal.
func TestLostEnrolmentAnswerAndRenewal(t *testing.T) {
	b := newBroker(t, time.Hour)
	n := newNode(t, b, t.TempDir())
	n.put(b.token("n1"))
	now := time.Now()
	n.turn(t.Context(), now)
	first := n.serialNow()
	b.passes(50 * time.Minute)
	now = now.Add(50 * time.Minute)
	n.put(b.token("n1"))
	b.lose = true
	n.turn(t.Context(), now)
	if n.serialNow() == first {
		t.Fatalf("not renewed: %s", n.logs.String())
	}
	if _, err := os.Stat(n.options.TokenFile); err != nil {
		t.Fatal(err)
	}
	n.turn(t.Context(), now.Add(maxPause))
	for _, path := range []string{n.options.TokenFile, n.nextPath()} {
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left (%v): %s", path, err, n.logs.String())
		}
	}
}

// A node whose clock is far ahead finds each new certificate old, and renews it
// now and then only.
func TestRenewalsByAClockThatIsAhead(t *testing.T) {
	b := newBroker(t, time.Hour)
	n := newNode(t, b, t.TempDir())
	n.put(b.token("n1"))
	now := time.Now()
	n.turn(t.Context(), now)
	now = now.Add(50 * time.Minute)
	n.turn(t.Context(), now)
	second := n.serialNow()
	for range 100 {
		now = now.Add(checkEvery)
		n.turn(t.Context(), now)
	}
	if n.serialNow() != second {
		t.Error("renewed again at once")
	}
	if n.turn(t.Context(), now.Add(5*time.Minute)); n.serialNow() == second {
		t.Errorf("not renewed: %s", n.logs.String())
	}
}
