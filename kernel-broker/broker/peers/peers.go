// SPDX-License-Identifier: Apache-2.0

// Package peers is how brokers of one cluster give each other artifacts: each serves its own and nothing else, to brokers
// alone, and asks those that run for what it lacks.
//
// A digest names what is asked for, and the store checks it before the file has its name. So a peer, and what led to its
// address, need not be trusted; that only brokers are answered is for what artifacts say of users' jobs.
package peers

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/singleflight"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/artifact"
)

// Peer is a broker that runs, as it announces itself.
type Peer struct {
	Host    string `json:"host"`
	Address string `json:"address"`
	// ID is of one broker, also when it starts again.
	ID string `json:"id"`
}

// Text is how a broker announces itself.
func (p Peer) Text() (string, error) {
	text, err := json.Marshal(p)
	return string(text), err
}

// parse refuses what cannot be asked.
func parse(text string) (p Peer, err error) {
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return p, err
	}
	_, port, err := net.SplitHostPort(p.Address)
	if err != nil || port == "" || kb.ValidateNodeName(p.Host) != nil || strings.ContainsAny(p.Address, "/?#@ ") {
		return p, fmt.Errorf("%.200q announces no address of a broker: %w", text, kb.ErrInvalid)
	}
	return p, nil
}

// Options of an Exchange.
type Options struct {
	Files *artifact.Store
	// ID is the own one.
	ID string
	// Announced returns the texts of all brokers that run; nil: there are no others.
	Announced func(ctx context.Context) ([]string, error)
	// TLS is for both ends.
	TLS *tls.Config
	// MostBytes of one artifact.
	MostBytes uint64
	// Elsewhere adds to an error who may have what nobody who runs has; nil: nobody.
	Elsewhere func(ctx context.Context, running []string) string
	Log       *slog.Logger
}

// Exchange is a broker's store of artifacts with those of its peers behind it.
type Exchange struct {
	*artifact.Store
	o       Options
	client  *http.Client
	fetches singleflight.Group
	failed  map[string]string // what Copy could not fetch, with the reason
}

const (
	dialLimit   = 3 * time.Second
	answerLimit = 10 * time.Second
	// fetchLimit is that of calls that carry files.
	fetchLimit = 30 * time.Minute
)

// New returns an exchange, to be closed.
func New(o Options) *Exchange {
	o.Log = cmp.Or(o.Log, slog.Default())
	return &Exchange{Store: o.Files, o: o, failed: map[string]string{}, client: &http.Client{
		Transport: &http.Transport{
			DialContext: (&net.Dialer{Timeout: dialLimit}).DialContext, TLSClientConfig: o.TLS, TLSHandshakeTimeout: answerLimit,
			ResponseHeaderTimeout: answerLimit, MaxResponseHeaderBytes: 16 << 10, DisableCompression: true, IdleConnTimeout: time.Minute, MaxConnsPerHost: 8,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Close closes connections that rest.
func (e *Exchange) Close() { e.client.CloseIdleConnections() }

// Others are the peers that run.
func (e *Exchange) Others(ctx context.Context) ([]Peer, error) {
	if e.o.Announced == nil {
		return nil, nil
	}
	texts, err := e.o.Announced(ctx)
	if err != nil {
		return nil, err
	}
	var others []Peer
	for _, text := range texts {
		p, err := parse(text)
		switch {
		case err != nil:
			e.o.Log.Warn("a broker's announcement is not understood", "error", err)
		case p.ID != e.o.ID:
			others = append(others, p)
		}
	}
	slices.SortFunc(others, func(a, b Peer) int { return cmp.Or(cmp.Compare(a.Host, b.Host), cmp.Compare(a.ID, b.ID)) })
	return others, nil
}

// Open opens an artifact, which a peer gives where it is missing.
func (e *Exchange) Open(ctx context.Context, digest string) (*os.File, error) {
	file, err := e.Store.Open(ctx, digest)
	if !errors.Is(err, kb.ErrNotFound) {
		return file, err
	}
	if err := e.Fetch(ctx, digest); err != nil {
		return nil, err
	}
	return e.Store.Open(ctx, digest)
}

// Check verifies a whole file. A peer gives one that is damaged or missing.
func (e *Exchange) Check(ctx context.Context, digest string) error {
	err := e.Store.Check(ctx, digest)
	if !errors.Is(err, kb.ErrInvalid) && !errors.Is(err, kb.ErrNotFound) {
		return err
	}
	if e.Fetch(ctx, digest) == nil {
		return nil
	}
	return err
}

// Fetch has an artifact that is missing from a peer. Who asks for one at the same time shares the transfer, which does not end
// with one of them.
func (e *Exchange) Fetch(ctx context.Context, digest string) error {
	if err := kb.ValidateDigest(digest); err != nil {
		return err
	}
	done := e.fetches.DoChan(digest, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fetchLimit)
		defer cancel()
		return nil, e.fetch(ctx, digest)
	})
	select {
	case result := <-done:
		return result.Err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (e *Exchange) fetch(ctx context.Context, digest string) error {
	others, err := e.Others(ctx)
	if err != nil {
		return fmt.Errorf("artifact %s: it is not on this host, and which other brokers run is not known: %w", digest, err)
	}
	var wrong []error
	var hosts []string
	for _, p := range others {
		err := e.from(ctx, p, digest)
		if err == nil {
			return nil
		}
		hosts = append(hosts, p.Host)
		switch {
		case errors.Is(err, kb.ErrNotFound):
		case errors.Is(err, kb.ErrInvalid):
			e.o.Log.Error("a broker gives wrong bytes for an artifact: its copy is damaged", "broker", p.Host, "digest", digest, "error", err)
			fallthrough
		default:
			wrong = append(wrong, fmt.Errorf("broker %s: %w", p.Host, err))
		}
	}
	text := "no other broker runs"
	if len(hosts) > 0 {
		text = "nor on those of the other brokers that run, " + strings.Join(hosts, ", ")
	}
	if e.o.Elsewhere != nil {
		text += e.o.Elsewhere(ctx, hosts)
	}
	if len(wrong) > 0 {
		return fmt.Errorf("artifact %s: not on this host: %w: %w", digest, kb.ErrUnavailable, errors.Join(wrong...))
	}
	return fmt.Errorf("artifact %s: not on this host, %s: %w", digest, text, kb.ErrNotFound)
}

// Copy fetches what is wanted and missing, one after the other, and returns how many are missing still. It logs a reason once.
func (e *Exchange) Copy(ctx context.Context, wanted []string) (missing int) {
	failed := map[string]string{}
	for _, digest := range wanted {
		if _, err := e.Stat(digest); !errors.Is(err, kb.ErrNotFound) {
			continue
		}
		err := e.Fetch(ctx, digest)
		if ctx.Err() != nil {
			return missing
		}
		if err == nil {
			e.o.Log.Info("artifact copied from another broker", "digest", digest)
			continue
		}
		failed[digest] = err.Error()
		if e.failed[digest] != failed[digest] {
			e.o.Log.Warn("artifact not copied from another broker, it is tried again", "digest", digest, "error", err)
		}
	}
	e.failed = failed
	return len(failed)
}
