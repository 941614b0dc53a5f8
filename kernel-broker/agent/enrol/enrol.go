// SPDX-License-Identifier: Apache-2.0

// Package enrol gets the node its certificate: the first by a token that an
// administrator put into a file, each later one by the one before it.
//
// The idea is that the key is made on the node and never leaves it, and that a
// token in the file is a wish: whoever puts one there wants the node to enrol,
// be it the first time, after a revocation, or because its folder was lost.
// The file goes when the wish is fulfilled. One that cannot be fulfilled does not
// keep the node from renewing what it has.
package enrol

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/mtls"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/safeopen"
)

const (
	// look is how often the token's file and the certificate are looked at, and
	// firstLook where the node waits for its first one.
	look      = 2 * time.Second
	firstLook = 200 * time.Millisecond
	// Pauses after what did not work.
	minPause = time.Second
	maxPause = time.Minute
	// callLimit is for one question to the broker.
	callLimit = 15 * time.Second
	// maxTokenFile is more than any token with a line end.
	maxTokenFile = 4096
)

// Options of an enroller.
type Options struct {
	// Node is this node's name, Broker the address of the broker.
	Node, Broker string
	// Paths are where key and certificates are kept, TokenFile is where a token
	// may appear.
	Paths     mtls.Paths
	TokenFile string
	// Dial makes connections.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	Log  *slog.Logger
}

// Enroller keeps the node's certificate good.
type Enroller struct {
	options Options
	files   *mtls.Files
	ready   chan struct{}

	// Each has a pause of its own: a token that is refused for ever must not
	// keep the renewal waiting.
	enrolment, renewal backoff

	delay   time.Duration // how long after its time this certificate is renewed
	serial  string
	waiting bool // said that there is neither certificate nor token
}

// New makes an enroller; Run does the work.
func New(o Options) *Enroller {
	return &Enroller{options: o, files: mtls.NewFiles(o.Paths), ready: make(chan struct{})}
}

// Source is what the node shows and trusts.
func (e *Enroller) Source() mtls.Source { return e.files }

// Ready is closed when the node has a certificate for the first time.
func (e *Enroller) Ready() <-chan struct{} { return e.ready }

// Run goes on until the context ends.
func (e *Enroller) Run(ctx context.Context) {
	for ctx.Err() == nil {
		e.turn(ctx, time.Now())
		pause := look
		if e.serial == "" {
			pause = firstLook
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// turn does what is to be done now, if anything.
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
		e.done(&e.renewal, now, "renew", e.renew(ctx, own))
	case err != nil && !there:
		e.want(err)
	}
	if own, err = e.own(time.Now()); err == nil {
		e.announce(own)
	}
}

// due says whether it is time to renew a certificate.
func (e *Enroller) due(own mtls.Peer, now time.Time) bool {
	return now.After(mtls.RenewAt(own.Certificate.NotBefore, own.Certificate.NotAfter).Add(e.delay))
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
	e.delay = rand.N(own.Certificate.NotAfter.Sub(own.Certificate.NotBefore)/12 + 1) //nolint:gosec // G404: spreads the nodes over time; nobody gains by guessing it
	e.options.Log.Info("node has a certificate", "name", own.Name.String(), "serial", serial, "until", own.Certificate.NotAfter)
	select {
	case <-e.ready:
	default:
		close(e.ready)
	}
}

// want says, once, what an administrator has to do.
func (e *Enroller) want(err error) {
	if !e.waiting {
		e.waiting = true
		e.options.Log.Warn("node has no certificate and waits for a token",
			"file", e.options.TokenFile, "make_one", "kernelctl node token "+e.options.Node, "error", err)
	}
}

// backoff is the pause after what did not work, which grows.
type backoff struct {
	pause  time.Duration
	resume time.Time
}

func (b *backoff) over(now time.Time) bool { return !now.Before(b.resume) }

// done notes how something went, and when the next try is.
func (e *Enroller) done(b *backoff, now time.Time, what string, err error, more ...any) {
	if err == nil {
		*b = backoff{}
		return
	}
	b.pause = min(max(2*b.pause, minPause), maxPause)
	b.resume = now.Add(b.pause)
	e.options.Log.Error("certificate not had", append([]any{"action", what, "again_in", b.pause, "error", err}, more...)...)
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
