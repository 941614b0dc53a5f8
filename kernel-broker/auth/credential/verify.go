// SPDX-License-Identifier: Apache-2.0

package credential

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// Decoded is what a decoder found in a credential.
type Decoded struct {
	UID, GID uint32
	// Encoded and Decoded are when, by the clocks of the two hosts.
	Encoded, Decoded time.Time
	// Host is where the credential says to have been made.
	Host    netip.Addr
	Payload []byte
}

// Decoder judges credentials. Its errors are kernelbroker.ErrUnauthenticated for a bad
// one and kernelbroker.ErrUnavailable when it could not look. Beside
// ErrUnauthenticated it may tell whose the credential was.
type Decoder interface {
	Decode(ctx context.Context, credential string) (Decoded, error)
}

// Options of a verifier.
type Options struct {
	Decoder Decoder
	// Cluster is whose broker this is.
	Cluster string
	// Now defaults to time.Now.
	Now func() time.Time
}

// Verifier judges the credentials of one broker's calls. Safe for concurrent
// use.
type Verifier struct {
	decoder Decoder
	cluster string
	now     func() time.Time
	// began: what was made earlier may have been used with a broker before
	// this one, of which it knows nothing.
	began  time.Time
	memory memory
}

// NewVerifier returns a verifier whose broker begins now.
func NewVerifier(o Options) *Verifier {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Verifier{decoder: o.Decoder, cluster: o.Cluster, now: o.Now, began: o.Now().Truncate(time.Second),
		memory: memory{users: map[uint32]map[string]time.Time{}}}
}

// VerifiedUser is who makes a call, once the call's message is found to be the one
// that was vouched for.
type VerifiedUser struct {
	UID, GID uint32
	Host     netip.Addr
	digest   string
}

// Verify judges a credential that came with a call of a method. It counts as
// used from here on, whatever becomes of the call. With an error it returns
// whose the credential seems to be, for the record, if that is known.
func (v *Verifier) Verify(ctx context.Context, credential, method string) (*VerifiedUser, error) {
	vouched, err := v.decoder.Decode(ctx, credential)
	if err != nil {
		return claimedUser(vouched), err
	}
	p := &VerifiedUser{UID: vouched.UID, GID: vouched.GID, Host: vouched.Host}
	claim, err := parseClaim(vouched.Payload)
	if err != nil {
		return p, err
	}
	p.digest = claim.Digest
	switch age := vouched.Decoded.Sub(vouched.Encoded); {
	case claim.Cluster != v.cluster:
		return p, fmt.Errorf("credential says %q, this is the broker of %q (cluster in client.yaml and broker.yaml): %w",
			claim.Cluster, v.cluster, ErrElsewhere)
	case claim.Method != method:
		return p, fmt.Errorf("credential says %q: %w", claim.Method, ErrOtherCall)
	case age > MaxAge || age < -MaxAge:
		return p, fmt.Errorf("credential was made %v before it came, at most %v either way are taken (do the clocks agree?): %w",
			age, MaxAge, ErrStale)
	case vouched.Encoded.Before(v.began):
		return p, fmt.Errorf("credential was made before this broker began to listen, make another one: %w", ErrStale)
	}
	return p, v.memory.add(v.now(), vouched.UID, claim.Nonce)
}

func claimedUser(v Decoded) *VerifiedUser {
	if v.Encoded.IsZero() || v.Encoded.Unix() == 0 {
		return nil
	}
	return &VerifiedUser{UID: v.UID, GID: v.GID, Host: v.Host}
}

// Binds reports whether the message is the one that was vouched for.
func (p *VerifiedUser) Binds(message proto.Message) error {
	if p.digest == "" || Digest(message) != p.digest {
		return fmt.Errorf("the message is not the one that was vouched for: %w", ErrOtherCall)
	}
	return nil
}

// How many calls are remembered, of each user and of all. Nobody makes as many
// within the time by hand, and one user must not fill it for the others.
const (
	mostOfUser = 1 << 14
	mostOfAll  = 1 << 18
	// memorable is longer than any credential counts.
	memorable = 2*MaxAge + 2*time.Second
)

// memory knows the nonces that were used. munged has such a memory, too, but
// loses it when it is restarted.
type memory struct {
	mu    sync.Mutex
	users map[uint32]map[string]time.Time
	all   int
	swept time.Time
}

func (m *memory) add(now time.Time, uid uint32, nonce string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sweep(now)
	used := m.users[uid]
	if _, again := used[nonce]; again {
		return ErrUsed
	}
	if len(used) >= mostOfUser || m.all >= mostOfAll {
		return fmt.Errorf("uid %d made %d calls within %v, and there is no room to remember more: %w",
			uid, len(used), memorable, kb.ErrUnavailable)
	}
	if used == nil {
		used = map[string]time.Time{}
		m.users[uid] = used
	}
	used[nonce] = now
	m.all++
	return nil
}

// sweep forgets now and then what cannot come again.
func (m *memory) sweep(now time.Time) {
	if now.Sub(m.swept) < MaxAge/4 {
		return
	}
	m.swept = now
	for uid, used := range m.users {
		for nonce, at := range used {
			if now.Sub(at) > memorable {
				delete(used, nonce)
				m.all--
			}
		}
		if len(used) == 0 {
			delete(m.users, uid)
		}
	}
}
