// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"cmp"
	"context"
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/mtls"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/digest"
)

// Life of tokens.
const (
	DefaultTokenTTL = time.Hour
	MaxTokenTTL     = 30 * 24 * time.Hour
)

// maxAhead is how far in the future a certificate may begin: clocks of brokers
// differ by seconds, and nodes ask again for a while.
const maxAhead = 5 * time.Minute

// Where a certificate came from.
const (
	fromToken   = "token"
	fromRenewal = "renewal"
)

// Registry keeps the records of nodes, and knows which certificates are void.
type Registry struct {
	o RegistryOptions

	mu      sync.RWMutex
	revoked map[string]*Revocation
	onVoid  func(node string)
}

// RegistryOptions say where the records are.
type RegistryOptions struct {
	Store   store.Store
	Cluster string
	// Authority signs; nil where the site's does.
	Authority *Authority
	Log       *slog.Logger
	// Now is the clock; nil: the system's.
	Now func() time.Time
}

// OpenRegistry reads which nodes are revoked, so that nobody is let in before
// that is known.
func OpenRegistry(ctx context.Context, o RegistryOptions) (*Registry, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	r := &Registry{o: o, revoked: map[string]*Revocation{}, onVoid: func(string) {}}
	records, _, err := o.Store.List(ctx, recordPrefix)
	if err != nil {
		return nil, fmt.Errorf("records of nodes' certificates: %w", err)
	}
	for _, rec := range records {
		r.take(rec)
	}
	return r, nil
}

// CreateToken makes a token for a node. Its text is in nothing but the answer.
func (r *Registry) CreateToken(ctx context.Context, node string, ttl time.Duration, by string) (mtls.Token, time.Time, error) {
	if r.o.Authority == nil {
		return mtls.Token{}, time.Time{}, errNoAuthority
	}
	ttl = cmp.Or(ttl, DefaultTokenTTL)
	if ttl < time.Second || ttl > MaxTokenTTL {
		return mtls.Token{}, time.Time{}, fmt.Errorf("token of node %q: %v is not within 1s and %v: %w", node, ttl, MaxTokenTTL, kb.ErrInvalid)
	}
	token, err := mtls.NewToken(node, r.o.Authority.Fingerprint())
	if err != nil {
		return token, time.Time{}, err
	}
	expires := r.o.Now().Add(ttl).UTC()
	err = r.change(ctx, node, func(record *Record) error {
		record.Token = &Pending{Hash: digest.Of([]byte(token.Secret)), Expires: expires, By: by}
		return nil
	})
	if err != nil {
		return mtls.Token{}, time.Time{}, err
	}
	r.o.Log.Info("token for a node made", "node", node, "by", by, "expires", expires)
	return token, expires, nil
}

// Credentials are what a node gets: its chain, and whom to trust.
type Credentials struct {
	Chain       []*x509.Certificate
	Authorities []*x509.Certificate
}

// Enrol changes a token into a certificate.
func (r *Registry) Enrol(ctx context.Context, node, secret string, request []byte) (Credentials, error) {
	return r.sign(ctx, node, request, fromToken, r.byToken(secret))
}

// MayEnrol returns the error that Enrol would return now, and changes nothing:
// who has no token that counts is refused before a change is on record. It
// promises nothing, since another may use the token first.
func (r *Registry) MayEnrol(ctx context.Context, node, secret string, request []byte) error {
	_, key, err := r.keyOf(request)
	if err != nil {
		return err
	}
	record, _, err := r.get(ctx, node)
	if err != nil {
		return err
	}
	return r.grant(&record, key, r.o.Now(), r.byToken(secret))
}

// Renew gives a node that has a certificate the next one.
func (r *Registry) Renew(ctx context.Context, peer mtls.Peer, request []byte) (Credentials, error) {
	return r.sign(ctx, peer.Name.Name, request, fromRenewal, func(record *Record, _ string, _ time.Time) error {
		// On the record, not on what is remembered of it: a revocation that
		// comes at the same time is either seen here or fences this change.
		if record.Revoked.Voids(peer.Certificate.NotBefore) {
			return void(peer, record.Revoked)
		}
		return nil
	})
}

// permission decides whether a key may have a certificate.
type permission func(record *Record, key string, now time.Time) error

func (r *Registry) byToken(secret string) permission {
	return func(record *Record, key string, now time.Time) error {
		err := record.use(secret, key, now)
		if errors.Is(err, errUsed) {
			r.o.Log.Warn("a used token was presented with another key: somebody has a copy of it", "node", record.Node)
		}
		return err
	}
}

// grant decides whether a node gets a certificate if may lets it have one.
func (r *Registry) grant(record *Record, key string, now time.Time, may permission) error {
	if err := may(record, key, now); err != nil {
		return err
	}
	if record.begin(now).Sub(now) > maxAhead {
		return fmt.Errorf("node %q was revoked with all certificates that begin until %s, and a new one could begin only after that; the clock of a broker is wrong, or was: %w",
			record.Node, record.Revoked.At.UTC().Format(time.RFC3339), kb.ErrFailedPrecondition)
	}
	return nil
}

// sign gives a node the certificate that it is granted. An agent that did not
// hear the answer asks again with the same key, and gets another one.
func (r *Registry) sign(ctx context.Context, node string, request []byte, from string, may permission) (Credentials, error) {
	public, key, err := r.keyOf(request)
	if err != nil {
		return Credentials{}, err
	}
	var chain []*x509.Certificate
	err = r.change(ctx, node, func(record *Record) error {
		now := r.o.Now()
		if err := r.grant(record, key, now, may); err != nil {
			return err
		}
		var err error
		chain, err = r.issue(record, public, from, now)
		return err
	})
	if err != nil {
		return Credentials{}, err
	}
	authorities, err := r.o.Authority.Authorities()
	if err != nil {
		return Credentials{}, err
	}
	r.o.Log.Info("certificate signed", "node", node, "from", from,
		"serial", fmt.Sprintf("%x", chain[0].SerialNumber), "until", chain[0].NotAfter)
	return Credentials{Chain: chain, Authorities: authorities}, nil
}

// keyOf returns the key that a certificate is asked for, and its fingerprint.
func (r *Registry) keyOf(request []byte) (crypto.PublicKey, string, error) {
	if r.o.Authority == nil {
		return nil, "", errNoAuthority
	}
	public, err := mtls.ParseRequest(request)
	if err != nil {
		return nil, "", err
	}
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return nil, "", fmt.Errorf("public key: %w: %w", kb.ErrInvalid, err)
	}
	return public, digest.Of(der), nil
}

func (r *Registry) issue(record *Record, public crypto.PublicKey, from string, now time.Time) ([]*x509.Certificate, error) {
	name := mtls.Name{Cluster: r.o.Cluster, Role: mtls.Node, Name: record.Node}
	chain, err := r.o.Authority.issue(name, public, record.begin(now))
	if err != nil {
		return nil, fmt.Errorf("node %q: %w", record.Node, err)
	}
	record.note(chain[0], from, now)
	return chain, nil
}

// Rotate has the authority go on with a new key.
func (r *Registry) Rotate(ctx context.Context, by string) (fingerprint string, err error) {
	if r.o.Authority == nil {
		return "", errNoAuthority
	}
	// Certificates may have been signed for longer than they are now.
	records, err := r.List(ctx, "")
	if err != nil {
		return "", err
	}
	var last time.Time
	for _, record := range records {
		for _, issued := range record.Issued {
			if issued.NotAfter.After(last) {
				last = issued.NotAfter
			}
		}
	}
	if fingerprint, err = r.o.Authority.Rotate(ctx, last); err != nil {
		return "", err
	}
	r.o.Log.Warn("authority rotated", "by", by, "fingerprint", fingerprint)
	return fingerprint, nil
}

// Cluster is whose nodes are on record.
func (r *Registry) Cluster() string { return r.o.Cluster }

// List returns the records, sorted by node; only one where a node is named.
func (r *Registry) List(ctx context.Context, node string) ([]Record, error) {
	if node != "" {
		record, revision, err := r.get(ctx, node)
		if err == nil && revision == 0 {
			err = fmt.Errorf("node %q has never had a token: %w", node, kb.ErrNotFound)
		}
		return []Record{record}, err
	}
	list, _, err := r.o.Store.List(ctx, recordPrefix)
	if err != nil {
		return nil, fmt.Errorf("records of nodes' certificates: %w: %w", kb.ErrUnavailable, err)
	}
	var out []Record
	for _, rec := range list {
		record, err := decode(rec)
		if err != nil {
			return nil, err
		}
		out = append(out, record)
	}
	return out, nil
}

var errNoAuthority = fmt.Errorf("the site's authority signs here, not the broker's (tls.mode: site): %w", kb.ErrFailedPrecondition)

// Accept says whether a certificate that leads to an authority is still good.
func (r *Registry) Accept(peer mtls.Peer) error {
	r.mu.RLock()
	revocation := r.revoked[peer.Name.Name]
	r.mu.RUnlock()
	if revocation.Voids(peer.Certificate.NotBefore) {
		return void(peer, revocation)
	}
	return nil
}

func void(peer mtls.Peer, revocation *Revocation) error {
	return fmt.Errorf("node %q was revoked at %s: %w", peer.Name.Name, revocation.At.UTC().Format(time.RFC3339), kb.ErrDenied)
}

// OnVoid has a function called for each node that is revoked from now on, after
// Accept began to refuse it. The function must not block.
func (r *Registry) OnVoid(cut func(node string)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.onVoid = cut
}

// Revoke voids the certificates that a node has, and its token.
func (r *Registry) Revoke(ctx context.Context, node, by, reason string) error {
	if err := kb.ValidateNodeName(node); err != nil {
		return err
	}
	var revocation *Revocation
	err := r.change(ctx, node, func(record *Record) error {
		revocation = record.revoke(r.o.Now(), by, reason)
		return nil
	})
	if err != nil {
		return err
	}
	r.o.Log.Warn("node revoked", "node", node, "by", by, "reason", reason)
	r.learn(node, revocation)
	return nil
}

// learn remembers a revocation, unless a newer one is known.
func (r *Registry) learn(node string, revocation *Revocation) {
	r.mu.Lock()
	if old := r.revoked[node]; revocation == nil || old != nil && !revocation.At.After(old.At) {
		r.mu.Unlock()
		return
	}
	r.revoked[node] = revocation
	cut := r.onVoid
	r.mu.Unlock()
	cut(node)
}

var forEver = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)

func (r *Registry) take(rec store.Record) {
	record, err := decode(rec)
	if err != nil {
		// What it says may be that the node is revoked.
		r.o.Log.Error("node kept out: its record is damaged", "error", err)
		record.Node, record.Revoked = strings.TrimPrefix(rec.Key, recordPrefix), &Revocation{At: forEver}
	}
	r.learn(record.Node, record.Revoked)
}
