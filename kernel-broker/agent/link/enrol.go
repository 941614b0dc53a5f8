// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/mtls"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/retryinfo"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/safeopen"
)

const (
	// checkEvery is the interval between checks of the token file and the certificate, and firstLook that of a node without
	// certificate.
	checkEvery      = 2 * time.Second
	firstCheckEvery = 200 * time.Millisecond
	// Pauses after failures.
	minPause = time.Second
	maxPause = time.Minute
	// callLimit is for one question to the broker, on a connection of its own.
	callLimit = dialLimit + 15*time.Second
	// maxTokenFile is more than any token with a line end.
	maxTokenFile = 4096
)

// EnrolOptions of an enroller.
type EnrolOptions struct {
	// Node is this node's name, Broker the address of the broker.
	Node, Broker string
	// Paths hold key and certificates; TokenFile is where a token may appear.
	Paths     mtls.Paths
	TokenFile string
	Log       *slog.Logger
}

// Enroller keeps the node's certificate good.
type Enroller struct {
	options EnrolOptions
	files   *mtls.Files
	ready   chan struct{}

	// Separate pauses: a token that is always refused must not delay the renewal.
	enrolment, renewal retryPause

	delay   time.Duration // how long after its time this certificate is renewed
	renewed time.Time
	serial  string
	waiting bool // logged that there is neither certificate nor token
}

// NewEnroller makes an enroller; Run does the work.
func NewEnroller(o EnrolOptions) *Enroller {
	return &Enroller{options: o, files: mtls.NewFiles(o.Paths), ready: make(chan struct{})}
}

// Source is the node's identity and its trust anchors.
func (e *Enroller) Source() mtls.Source { return e.files }

// Ready is closed when the node has a certificate for the first time.
func (e *Enroller) Ready() <-chan struct{} { return e.ready }

// Certified reports whether the node has a certificate now.
func (e *Enroller) Certified() bool {
	_, err := e.own(time.Now())
	return err == nil
}

// Run enrols and renews until the context ends.
func (e *Enroller) Run(ctx context.Context) {
	for ctx.Err() == nil {
		e.turn(ctx, time.Now())
		pause := checkEvery
		if e.serial == "" {
			pause = firstCheckEvery
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// turn does one step if it is due.
func (e *Enroller) turn(ctx context.Context, now time.Time) {
	own, err := e.own(now)
	if err == nil {
		e.announce(own)
	}
	token, tokenErr := readToken(e.options.TokenFile)
	there := !errors.Is(tokenErr, fs.ErrNotExist)
	enrolled := false
	if there && e.enrolment.over(now) {
		if tokenErr == nil {
			tokenErr = e.enrol(ctx, token)
		}
		enrolled = tokenErr == nil
		e.done(&e.enrolment, now, "enrol", tokenErr, "file", e.options.TokenFile,
			"remedy", "put another token there (kernelctl node token "+e.options.Node+"), or remove the file")
	}
	switch {
	case enrolled:
	case err == nil && e.due(own, now) && e.renewal.over(now):
		if err = e.renew(ctx, own); err == nil {
			e.renewed = now
		}
		e.done(&e.renewal, now, "renew", err)
	case err != nil && !there:
		e.logMissing(err)
	}
	if own, err = e.own(time.Now()); err == nil {
		e.announce(own)
	}
}

// due reports whether to renew a certificate. By a clock that is far ahead the next one is due at once, too, and so on.
func (e *Enroller) due(own mtls.Peer, now time.Time) bool {
	life := own.Certificate.NotAfter.Sub(own.Certificate.NotBefore)
	return now.Sub(e.renewed) > life/10 && now.After(mtls.RenewAt(own.Certificate.NotBefore, own.Certificate.NotAfter).Add(e.delay))
}

// own returns the node's certificate, if it is one that can be used.
func (e *Enroller) own(now time.Time) (mtls.Peer, error) {
	own, err := e.files.Own()
	if err != nil {
		return own, err
	}
	if own.Name.Role != mtls.Node || own.Name.Name != e.options.Node {
		return own, fmt.Errorf("certificate is of %s and not of node %q: %w", own.Name, e.options.Node, kb.ErrInvalid)
	}
	if now.After(own.Certificate.NotAfter) {
		return own, fmt.Errorf("certificate ended at %s: %w", own.Certificate.NotAfter.UTC().Format(time.RFC3339), kb.ErrUnauthenticated)
	}
	return own, nil
}

func (e *Enroller) announce(own mtls.Peer) {
	serial := fmt.Sprintf("%x", own.Certificate.SerialNumber)
	if serial == e.serial {
		return
	}
	e.serial, e.waiting = serial, false
	// Not all nodes of a cluster at once, which were enrolled at once.
	e.delay = rand.N(own.Certificate.NotAfter.Sub(own.Certificate.NotBefore)/12 + 1) //nolint:gosec // G404: spreads the nodes over time; guessing it gains nothing
	e.options.Log.Info("node has a certificate", "name", own.Name.String(), "serial", serial, "until", own.Certificate.NotAfter)
	select {
	case <-e.ready:
	default:
		close(e.ready)
	}
}

// logMissing logs once what an administrator has to do.
func (e *Enroller) logMissing(err error) {
	if !e.waiting {
		e.waiting = true
		e.options.Log.Warn("node has no certificate and waits for a token",
			"file", e.options.TokenFile, "make_one", "kernelctl node token "+e.options.Node, "error", err)
	}
}

// retryPause is the growing pause after failures.
type retryPause struct {
	pause  time.Duration
	resume time.Time
}

func (b *retryPause) over(now time.Time) bool { return !now.Before(b.resume) }

// done records a result and schedules the next try.
func (e *Enroller) done(b *retryPause, now time.Time, what string, err error, more ...any) {
	if err == nil {
		*b = retryPause{}
		return
	}
	b.pause = min(max(2*b.pause, minPause), maxPause)
	wait := b.pause/2 + upTo(b.pause/2)
	if told, said := retryinfo.After(err); said {
		wait = max(wait, min(told, maxTold)+upTo(min(told, maxTold)/8))
	}
	b.resume = now.Add(wait)
	e.options.Log.Error("no certificate", append([]any{"action", what, "again_in", wait.Round(time.Millisecond), "error", err}, more...)...)
}

func readToken(path string) (mtls.Token, error) {
	text, err := safeopen.Read(path, maxTokenFile, nil)
	if err != nil {
		return mtls.Token{}, fmt.Errorf("token: %w", err)
	}
	token, err := mtls.ParseToken(string(text))
	if err != nil {
		return mtls.Token{}, fmt.Errorf("token in %q: %w", path, err)
	}
	return token, nil
}
