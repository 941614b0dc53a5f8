// SPDX-License-Identifier: Apache-2.0

package slurm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/user"
	"strconv"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/cache"
)

// Every user may ask for the broker's health, so answers of slurmctld are kept,
// and for a shorter time that it gave none.
const (
	keepLevel   = 10 * time.Second
	keepSilence = askAccounts
)

// LevelProbe probes whether slurmctld accepts the broker's commands. Without an
// AdminLevel every switch fails, and only its job shows why.
type LevelProbe struct {
	answers cache.Cache[struct{}, levelAnswer]
	ask     func(ctx context.Context) (string, error)
}

type levelAnswer struct {
	text string
	err  error
}

// NewLevelProbe asks for the user that this process runs as.
func NewLevelProbe(uid int, ask func(ctx context.Context, user string, uid uint32) (string, error)) *LevelProbe {
	return &LevelProbe{ask: func(ctx context.Context) (string, error) {
		me, err := user.LookupId(strconv.Itoa(uid))
		if err != nil {
			return "", fmt.Errorf("the broker's own user: %w", err)
		}
		ctx, cancel := context.WithTimeout(ctx, askAccounts)
		defer cancel()
		return ask(ctx, me.Username, uint32(uid)) //nolint:gosec // G115: the own uid of this process
	}}
}

// Health is the health component of the AdminLevel. While slurmctld does not
// answer it is the last answer: another component reports the silence.
func (l *LevelProbe) Health(ctx context.Context) (string, error) {
	a, err := l.answers.GetOrLast(ctx, struct{}{}, keepSilence, func(ctx context.Context) (levelAnswer, time.Duration, error) {
		text, err := l.ask(ctx)
		if err == nil || errors.Is(err, kb.ErrDenied) {
			if text != "" {
				text = "slurmctld takes the broker's commands as " + text + "'s"
			}
			return levelAnswer{text, err}, keepLevel, nil
		}
		return levelAnswer{}, 0, err
	})
	return a.text, errors.Join(a.err, err)
}

// Warn logs at the start what the first switch would show.
func (l *LevelProbe) Warn(ctx context.Context, log *slog.Logger) {
	if _, err := l.Health(ctx); errors.Is(err, kb.ErrDenied) {
		log.Error("slurmctld will refuse the broker's commands", "error", err)
	}
}
