// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/user"
	"strconv"
	"sync"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// Anybody may ask for the broker's health, and each question to slurmctld is two
// processes: its answer holds for a while, that there was none for a shorter one.
const (
	keepLevel   = 10 * time.Second
	keepSilence = askAccounts
)

// level knows whether slurmctld takes the broker's commands. Without that every
// switch fails, one after the other, for a reason that only their jobs show.
type level struct {
	ask func(ctx context.Context) (string, error)
	now func() time.Time

	mu    sync.Mutex
	word  string
	err   error
	until time.Time
	known bool // that is not only silence
}

// newLevel asks for the user that this process is.
func newLevel(uid int, ask func(ctx context.Context, user string, uid uint32) (string, error)) *level {
	return &level{now: time.Now, ask: func(ctx context.Context) (string, error) {
		me, err := user.LookupId(strconv.Itoa(uid))
		if err != nil {
			return "", fmt.Errorf("the broker's own user: %w", err)
		}
		ctx, cancel := context.WithTimeout(ctx, askAccounts)
		defer cancel()
		return ask(ctx, me.Username, uint32(uid))
	}}
}

// health is the component of it. What slurmctld does not say now, since it is
// away, is what it said last: that it is away is another component's word.
func (l *level) health(ctx context.Context) (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.now().Before(l.until) {
		return l.word, l.err
	}
	word, err := l.ask(ctx)
	if word != "" {
		word = "slurmctld takes the broker's commands as " + word + "'s"
	}
	switch {
	case err == nil || errors.Is(err, kb.ErrDenied):
		l.word, l.err, l.until, l.known = word, err, l.now().Add(keepLevel), true
	case l.known:
		l.until = l.now().Add(keepSilence)
	default:
		l.word, l.err, l.until = word, err, l.now().Add(keepSilence)
	}
	return l.word, l.err
}

// warn says at the start what would otherwise show with the first switch.
func (l *level) warn(ctx context.Context, log *slog.Logger) {
	if _, err := l.health(ctx); errors.Is(err, kb.ErrDenied) {
		log.Error("slurmctld will take no command of the broker's", "error", err)
	}
}
