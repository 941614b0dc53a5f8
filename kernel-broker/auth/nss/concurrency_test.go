// SPDX-License-Identifier: Apache-2.0

package nss

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// slowHost is a getent that finds alice at once, and for other users blocks until
// the test lets it find none. It records the uids, and how many run at a time.
type slowHost struct {
	*Directory
	dir   string
	group sync.WaitGroup
}

func newSlowHost(t *testing.T) *slowHost {
	t.Helper()
	h := &slowHost{dir: t.TempDir()}
	h.Directory, _ = scripted(t, `case $2 in 20001) `+strings.TrimSpace(alice)+`; exit 0;; esac
cd `+h.dir+`
trap 'rm -f now.$$' EXIT TERM
echo $2 > now.$$
ls now.* | wc -l >> counts
echo $2 >> asked
until test -e go; do sleep 0.05; done
exit 2
`, `printf 'users\0'`+"\n")
	// However long the test takes, no answer expires and no lookup times out.
	now := time.Now()
	h.Now, h.limit = func() time.Time { return now }, time.Hour
	t.Cleanup(func() { h.goOn(t) })
	return h
}

// goOn lets getent answer, and waits for all lookups.
func (h *slowHost) goOn(t *testing.T) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(h.dir, "go"), nil, 0o600); err != nil {
		t.Error(err)
	}
	h.group.Wait()
}

// ask looks a user up in the background.
func (h *slowHost) ask(ctx context.Context, uid uint32) {
	h.group.Go(func() { _, _ = h.ByUID(ctx, uid) })
}

// noted are the numbers that getent wrote.
func (h *slowHost) noted(t *testing.T, name string) (numbers []int) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(h.dir, name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	for _, field := range strings.Fields(string(text)) {
		n, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		numbers = append(numbers, n)
	}
	return numbers
}

// hang waits until so many processes hang.
func (h *slowHost) hang(t *testing.T, want int) {
	t.Helper()
	for len(h.noted(t, "asked")) < want {
		time.Sleep(time.Millisecond)
	}
}

// Calls as many users, or many as one, run only a few processes on slurmctld's
// host at a time; the lookup for a job does not wait for them.
func TestProcessesAtATime(t *testing.T) {
	h := newSlowHost(t)
	for i := range 200 {
		h.ask(t.Context(), uint32(100_000+i))
	}
	for range 50 {
		h.ask(t.Context(), 7)
	}
	h.hang(t, ofOthers)
	if p, err := h.ByUID(ForJob(t.Context()), 20001); err != nil || p.Name != "alice" {
		t.Errorf("the user of a job: %+v, %v", p, err)
	}
	h.goOn(t)
	if most := slices.Max(h.noted(t, "counts")); most > ofOthers {
		t.Errorf("%d processes at a time", most)
	}
	seen := map[int]int{}
	for _, uid := range h.noted(t, "asked") {
		if seen[uid]++; seen[uid] > 1 {
			t.Errorf("uid %d was asked for twice", uid)
		}
	}
}

// Many users' jobs at once are bounded too.
func TestProcessesOfJobs(t *testing.T) {
	h := newSlowHost(t)
	for i := range 50 {
		h.ask(ForJob(t.Context()), uint32(100_000+i))
		h.ask(t.Context(), uint32(200_000+i))
	}
	h.hang(t, ofJobs+ofOthers)
	h.goOn(t)
	if most := slices.Max(h.noted(t, "counts")); most > ofJobs+ofOthers {
		t.Errorf("%d processes at a time", most)
	}
}

// One process answers all concurrent lookups of a user; a caller that stops
// waiting does not cancel it for the others.
func TestOneProcessForAUser(t *testing.T) {
	h := newSlowHost(t)
	answers := make(chan error, 51)
	ask := func() {
		_, err := h.ByUID(t.Context(), 7)
		answers <- err
	}
	h.group.Go(ask)
	h.hang(t, 1)
	for range 50 {
		h.group.Go(ask)
	}
	short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := h.ByUID(short, 7); !errors.Is(err, kb.ErrUnavailable) || errors.Is(err, kb.ErrNotFound) {
		t.Errorf("a caller that stops waiting: %v", err)
	}
	h.goOn(t)
	for range cap(answers) {
		if err := <-answers; !errors.Is(err, kb.ErrNotFound) {
			t.Error(err)
		}
	}
	if asked := h.noted(t, "asked"); len(asked) != 1 {
		t.Errorf("asked %d times", len(asked))
	}
}

// A lookup without a free slot fails as unavailable, not as an unknown user.
func TestNoTurn(t *testing.T) {
	d, _ := scripted(t, alice, `printf 'users\0'`+"\n")
	if !d.others.TryAcquire(ofOthers) {
		t.Fatal("turns are taken")
	}
	d.limit = time.Millisecond
	if _, err := d.ByUID(t.Context(), 20001); !errors.Is(err, kb.ErrUnavailable) || errors.Is(err, kb.ErrNotFound) || !strings.Contains(err.Error(), "none free") {
		t.Errorf("none free: %v", err)
	}
	d.limit = time.Hour
	d.others.Release(ofOthers)
	if p, err := d.ByUID(t.Context(), 20001); err != nil || p.Name != "alice" {
		t.Errorf("a turn: %+v, %v", p, err)
	}
}
