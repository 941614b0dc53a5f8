// SPDX-License-Identifier: Apache-2.0

// Package pki decides who may speak as which node: the broker's own authority,
// which signs certificates, and the records of whom it signed them for.
//
// The idea is that a certificate can only come from a token that an
// administrator made for one node, or from a certificate that the node has
// already. Both are decided on one record per node in the store, and each
// change of it is fenced by its revision: of two who come with the same token
// only one finds it unused, and a broker that is killed in between has either
// recorded the use or not handed anything out.
//
// Whom the authority has signed for it can void again. Roster knows which
// certificates are void; it works with a site's authority as well, whose keys
// this broker does not have.
package pki

import (
	"bytes"
	"cmp"
	"context"
	"crypto"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/mtls"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store/sealed"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/atomicfile"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/safeopen"
)

const (
	// authorityLifetime is long: nodes follow a rotation, but the certificates
	// that people copied to login nodes do not.
	authorityLifetime = 10 * 365 * 24 * time.Hour
	// backdate is for what nodes judge by their own clocks.
	backdate = 24 * time.Hour
)

// Authority signs. It is safe for concurrent use, and it is the mtls.Source of
// the broker that runs it: its own certificate is made when it is needed.
type Authority struct {
	o    Options
	name mtls.Name

	mu       sync.Mutex
	keys     []signing // oldest first; the last one signs
	own      *tls.Certificate
	ownUntil time.Time
	public   []byte // what the file for clients has
}

// signing is one generation of the authority.
type signing struct {
	number      int
	certificate *x509.Certificate
	key         crypto.Signer
	// crossed is the same authority, vouched for by the one before it, for
	// those who do not know it yet; nil for the first. Its end is that of the
	// one before it.
	crossed *x509.Certificate
}

type Options struct {
	// Secrets have keys and certificates, of all brokers of the cluster.
	Secrets *sealed.Box
	// Public is a file for the certificates alone, which clients need; empty:
	// none.
	Public string
	// Cluster and Host name the broker in its own certificate.
	Cluster, Host string
	// Lifetime of the certificates that it signs.
	Lifetime time.Duration
	// Now is the clock; nil: the system's.
	Now func() time.Time
}

// OpenAuthority reads the cluster's authority. kb.ErrNotFound: Found has to make it.
func OpenAuthority(ctx context.Context, o Options) (*Authority, error) {
	a, err := newAuthority(o)
	if err != nil {
		return nil, err
	}
	return a, a.Refresh(ctx)
}

func newAuthority(o Options) (*Authority, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	a := &Authority{o: o, name: mtls.Name{Cluster: o.Cluster, Role: mtls.Broker, Name: o.Host}}
	if err := a.name.Validate(); err != nil {
		return nil, fmt.Errorf("authority of cluster %q: %w", o.Cluster, err)
	}
	return a, nil
}

// Refresh reads the authority again: another broker may have rotated it.
func (a *Authority) Refresh(ctx context.Context) error {
	keys, err := readKeys(ctx, a.o.Secrets)
	if err == nil && len(keys) == 0 {
		err = fmt.Errorf("authority of cluster %q: no broker has made it yet: %w", a.o.Cluster, kb.ErrNotFound)
	}
	if err != nil {
		return err
	}
	a.mu.Lock()
	if !slices.EqualFunc(keys, a.keys, func(k, l signing) bool { return k.certificate.Equal(l.certificate) }) {
		a.keys, a.own = keys, nil
	}
	a.mu.Unlock()
	return a.publish()
}

// Found makes the authority of a cluster that has none: of the files in a folder, where earlier versions kept it, or else anew.
// It takes one commit, and leaves the files as they are. It returns how many it has read.
func Found(ctx context.Context, o Options, dir string) (files int, err error) {
	a, err := newAuthority(o)
	if err != nil {
		return 0, err
	}
	keys, err := readKeys(ctx, o.Secrets)
	if err != nil || len(keys) > 0 {
		return 0, err
	}
	if keys, err = readFiles(dir); err != nil {
		return 0, err
	}
	files = len(keys)
	if files == 0 {
		first, err := a.generation(nil, time.Time{})
		if err != nil {
			return 0, err
		}
		keys = []signing{first}
	}
	return files, addKeys(ctx, o.Secrets, keys...)
}

// publish writes down whom clients are to trust.
func (a *Authority) publish() error {
	if a.o.Public == "" {
		return nil
	}
	list, err := a.Authorities()
	if err != nil {
		return err
	}
	text := mtls.EncodeCertificates(list)
	a.mu.Lock()
	defer a.mu.Unlock()
	if bytes.Equal(text, a.public) {
		return nil
	}
	if err := atomicfile.Write(a.o.Public, text, 0o644); err != nil {
		return err
	}
	a.public = text
	return nil
}

// Rotate makes a new generation, which signs from now on. The one before it is
// trusted until a time, when the last certificate that it signed has ended.
func (a *Authority) Rotate(ctx context.Context, until time.Time) (fingerprint string, err error) {
	if fingerprint, err = a.rotate(ctx, until); err != nil {
		return "", err
	}
	return fingerprint, a.publish()
}

func (a *Authority) rotate(ctx context.Context, until time.Time) (fingerprint string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for {
		// As they are now: an administrator may have removed some.
		keys, err := readKeys(ctx, a.o.Secrets)
		if err != nil {
			return "", err
		}
		if len(keys) == 0 {
			return "", fmt.Errorf("authority: no key is left to sign a new one; restart the broker to start with a new authority: %w", kb.ErrInvalid)
		}
		fresh, err := a.generation(keys, until)
		if err != nil {
			return "", err
		}
		switch err := addKeys(ctx, a.o.Secrets, fresh); {
		case errors.Is(err, store.ErrConflict):
			// Another one was quicker: then its key vouches for ours.
		case err != nil:
			return "", err
		default:
			keys = append(keys, fresh)
			a.keys, a.own = keys, nil
			return mtls.Fingerprint(fresh.certificate), nil
		}
	}
}

// generation makes a key, its certificate, and the one by which the last of
// those that are there vouches for it. Its number is one that was never used by
// those: the highest one signs.
func (a *Authority) generation(keys []signing, until time.Time) (signing, error) {
	key, err := mtls.NewKey()
	if err != nil {
		return signing{}, fmt.Errorf("key of the authority: %w", err)
	}
	now := a.o.Now()
	template := &x509.Certificate{
		Subject:   pkix.Name{CommonName: "Kernel Broker " + a.o.Cluster + " " + now.UTC().Format(time.DateOnly)},
		NotBefore: now.Add(-backdate), NotAfter: now.Add(authorityLifetime),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		// Below it may be a successor that it vouches for, and no more.
		MaxPathLen: 1,
	}
	fresh := signing{key: key}
	if fresh.certificate, err = sign(template, nil, key.Public(), key); err != nil || len(keys) == 0 {
		return fresh, err
	}
	before := keys[len(keys)-1]
	fresh.number = before.number + 1
	vouched := *template
	vouched.MaxPathLen, vouched.MaxPathLenZero = 0, true
	// The broker's own certificate is one that it signed, too.
	vouched.NotAfter = now.Add(a.o.Lifetime)
	if until.After(vouched.NotAfter) {
		vouched.NotAfter = until
	}
	if before.certificate.NotAfter.Before(vouched.NotAfter) {
		vouched.NotAfter = before.certificate.NotAfter
	}
	fresh.crossed, err = sign(&vouched, before.certificate, key.Public(), before.key)
	return fresh, err
}

// sign gives a template its serial number and a signature; without a parent it
// signs itself.
func sign(template, parent *x509.Certificate, public crypto.PublicKey, key crypto.Signer) (*x509.Certificate, error) {
	serial := make([]byte, 16)
	rand.Read(serial)
	serial[0] = serial[0]&0x7f | 0x40 // positive, and always as long
	template.SerialNumber = new(big.Int).SetBytes(serial)
	if parent == nil {
		parent = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, key)
	if err != nil {
		return nil, fmt.Errorf("certificate: %w", err)
	}
	return x509.ParseCertificate(der)
}

// issue signs for a name. A node's certificate is judged by this clock alone
// and begins at notBefore, so that one from before a revocation is told apart.
func (a *Authority) issue(name mtls.Name, public crypto.PublicKey, notBefore time.Time) ([]*x509.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.issueLocked(name, public, notBefore)
}

func (a *Authority) issueLocked(name mtls.Name, public crypto.PublicKey, notBefore time.Time) ([]*x509.Certificate, error) {
	uri, err := name.URI()
	if err != nil {
		return nil, err
	}
	usage := x509.ExtKeyUsageClientAuth
	if name.Role == mtls.Broker {
		usage = x509.ExtKeyUsageServerAuth
	}
	by := a.keys[len(a.keys)-1]
	notAfter := a.o.Now().Add(a.o.Lifetime)
	if by.certificate.NotAfter.Before(notAfter) {
		notAfter = by.certificate.NotAfter
	}
	leaf, err := sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: name.Name}, DNSNames: []string{name.Name}, URIs: []*url.URL{uri},
		NotBefore: notBefore, NotAfter: notAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{usage}, BasicConstraintsValid: true,
	}, by.certificate, public, by.key)
	if err != nil {
		return nil, err
	}
	return by.chain(leaf), nil
}

// chain is what a holder shows with a certificate that this generation signed.
func (s signing) chain(leaf *x509.Certificate) []*x509.Certificate {
	chain := []*x509.Certificate{leaf, s.certificate}
	if s.crossed != nil {
		chain = append(chain, s.crossed)
	}
	return chain
}

// Certificate implements mtls.Source: the broker's own, renewed at two thirds
// of its life. Its key is never written down.
func (a *Authority) Certificate() (*tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.o.Now()
	if a.own != nil && now.Before(a.ownUntil) {
		return a.own, nil
	}
	key, err := mtls.NewKey()
	if err != nil {
		return nil, fmt.Errorf("key of the broker: %w", err)
	}
	chain, err := a.issueLocked(a.name, &key.PublicKey, now.Add(-backdate))
	if err != nil {
		return nil, fmt.Errorf("certificate of the broker: %w", err)
	}
	own := &tls.Certificate{PrivateKey: key, Leaf: chain[0]}
	for _, c := range chain {
		own.Certificate = append(own.Certificate, c.Raw)
	}
	a.own, a.ownUntil = own, mtls.RenewAt(now, chain[0].NotAfter)
	return own, nil
}

// Authorities implements mtls.Source. A generation is trusted until everything
// that it signed has ended, which is as long as it vouches for its successor.
func (a *Authority) Authorities() ([]*x509.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.o.Now()
	var list []*x509.Certificate
	for i, k := range a.keys {
		if i+1 < len(a.keys) && a.keys[i+1].crossed != nil && now.After(a.keys[i+1].crossed.NotAfter) {
			continue
		}
		list = append(list, k.certificate)
	}
	return list, nil
}

// Fingerprint of the generation that signs.
func (a *Authority) Fingerprint() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return mtls.Fingerprint(a.keys[len(a.keys)-1].certificate)
}

var _ mtls.Source = (*Authority)(nil)

// Records of the generations: the higher the number, the newer.
const (
	// AuthorityPrefix begins the names of the records.
	AuthorityPrefix = "trust/authority/"
	keyRecord       = AuthorityPrefix + "%010d"
)

// readKeys reads every generation, the oldest first.
func readKeys(ctx context.Context, secrets *sealed.Box) ([]signing, error) {
	list, err := secrets.List(ctx, AuthorityPrefix)
	if err != nil {
		return nil, fmt.Errorf("authority: %w", err)
	}
	var keys []signing
	for _, s := range list {
		k, err := parseGeneration(s.Text)
		if err == nil {
			k.number, err = parseNumber(strings.TrimPrefix(s.Key, AuthorityPrefix))
		}
		if err != nil {
			return nil, fmt.Errorf("authority: record %q: %w", s.Key, err)
		}
		keys = append(keys, k)
	}
	return keys, nil
}

// addKeys writes generations. It replaces none: the error is store.ErrConflict where there is one with such a number.
func addKeys(ctx context.Context, secrets *sealed.Box, keys ...signing) error {
	var list []sealed.Secret
	for _, k := range keys {
		private, err := mtls.EncodeKey(k.key)
		if err != nil {
			return err
		}
		chain := []*x509.Certificate{k.certificate}
		if k.crossed != nil {
			chain = append(chain, k.crossed)
		}
		list = append(list, sealed.Secret{Key: fmt.Sprintf(keyRecord, k.number), Text: append(mtls.EncodeCertificates(chain), private...)})
	}
	if err := secrets.Add(ctx, list...); err != nil {
		return fmt.Errorf("authority: %w", err)
	}
	return nil
}

// readFiles reads what earlier versions kept in a folder, ca-NUMBER.pem, or an administrator has put there: a
// certificate that may sign, and its key. None where there is no folder.
func readFiles(dir string) ([]signing, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "ca-*.pem"))
	if err != nil {
		return nil, fmt.Errorf("authority in %q: %w", dir, err)
	}
	var keys []signing
	for _, path := range paths {
		k, err := readFile(path)
		if err != nil {
			return nil, fmt.Errorf("authority %q: %w", path, err)
		}
		keys = append(keys, k)
	}
	slices.SortStableFunc(keys, func(a, b signing) int { return cmp.Compare(a.number, b.number) })
	return keys, nil
}

func readFile(path string) (signing, error) {
	number, err := parseNumber(strings.TrimSuffix(strings.TrimPrefix(filepath.Base(path), "ca-"), ".pem"))
	if err != nil {
		// A copy that somebody made, for example: it counts for no key by chance.
		return signing{}, fmt.Errorf("its name is not ca-NUMBER.pem, so nobody knows how old it is; rename it or move it out of the folder: %w", err)
	}
	text, err := safeopen.Read(path, maxGeneration, func(info fs.FileInfo) error {
		if mode := info.Mode().Perm(); mode&0o077 != 0 {
			return fmt.Errorf("others may read it (mode %04o): chmod 600, and have a new one made: %w", mode, kb.ErrDenied)
		}
		return nil
	})
	if err != nil {
		return signing{}, err
	}
	k, err := parseGeneration(text)
	k.number = number
	return k, err
}

// maxGeneration is more than a key and two certificates have.
const maxGeneration = 64 << 10

func parseNumber(text string) (int, error) {
	number, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return 0, fmt.Errorf("%q is no number: %w", text, kb.ErrInvalid)
	}
	return int(number), nil
}

func parseGeneration(text []byte) (signing, error) {
	pair, err := mtls.ParsePair(text, text)
	if err != nil {
		return signing{}, err
	}
	key, can := pair.PrivateKey.(crypto.Signer)
	if !can || !pair.Leaf.IsCA || pair.Leaf.KeyUsage&x509.KeyUsageCertSign == 0 {
		return signing{}, fmt.Errorf("its first certificate may not sign others: %w", kb.ErrInvalid)
	}
	k := signing{certificate: pair.Leaf, key: key}
	if len(pair.Certificate) > 1 {
		if k.crossed, err = x509.ParseCertificate(pair.Certificate[1]); err != nil {
			return signing{}, fmt.Errorf("its second certificate: %w", err)
		}
	}
	return k, nil
}
