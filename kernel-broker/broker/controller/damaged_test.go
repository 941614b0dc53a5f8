// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/plan"
)

// A damaged image is said once, by its digest, until it is whole again. A store
// that cannot be read says nothing about it.
func TestDamagedImageIsSaidOnce(t *testing.T) {
	f, e := bare(t)
	f.c.log = slog.New(slog.NewTextHandler(&f.log, nil))
	var answer error
	f.c.o.CheckArtifact = func(context.Context, string) error { return answer }
	check := plan.Action{Kind: plan.CheckImage, Text: "sha256:aa"}
	for _, c := range []struct {
		name    string
		answer  error
		damaged bool
		err     bool
	}{
		{"whole", nil, false, false},
		{"unreadable", errors.New("input/output error"), false, true},
		{"damaged", fmt.Errorf("digest: %w", kb.ErrInvalid), true, false},
		{"gone", fmt.Errorf("file: %w", kb.ErrNotFound), true, false},
		{"unreadable, and known", errors.New("input/output error"), true, true},
		{"whole again", nil, false, false},
	} {
		answer = c.answer
		err := e.perform(t.Context(), check)
		detail, health := f.c.ImageHealth(t.Context())
		if (err != nil) != c.err || (health != nil) != c.damaged || c.damaged && !strings.Contains(health.Error(), "sha256:aa") {
			t.Errorf("%s: %v, health %q %v", c.name, err, detail, health)
		}
		if in := f.c.inputLocked(f.c.clock.Now(), plan.Everything(plan.Input{Nodes: f.c.records.nodes, Allocations: f.c.records.allocs})); (in.Damaged["sha256:aa"] != "") != c.damaged {
			t.Errorf("%s: the plan is told %v", c.name, in.Damaged)
		}
	}
	// Until then it is checked from time to time.
	f.c.damaged["sha256:aa"] = "x"
	now := f.c.checked
	for _, c := range []struct {
		after time.Duration
		want  int
	}{{0, 0}, {checkEvery, 1}, {checkEvery + time.Second, 0}, {2 * checkEvery, 1}} {
		if got := f.c.damagedLocked(now.Add(c.after)); len(got) != c.want {
			t.Errorf("after %v: %v", c.after, got)
		}
	}
	f.log.mu.Lock()
	defer f.log.mu.Unlock()
	if n := strings.Count(f.log.text.String(), "is damaged in the broker's store"); n != 1 {
		t.Errorf("said %d times", n)
	}
}
