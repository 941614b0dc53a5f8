// SPDX-License-Identifier: Apache-2.0

// Package credential is what a user's proof says and when it counts.
//
// A proof that only says who somebody is can be taken from one call and shown
// with another. So what the user's munged signs is a Claim: this method,
// this message, at this cluster's broker, once. The client writes it, and the
// broker's Verifier compares it with the call that it came with. How it
// is signed does not matter here: an Encoder and a Decoder are all that this
// package knows of MUNGE.
//
// Of a stream the first message is bound. For an upload that is enough: it
// names the digest and the size of all that follows, and nothing else is
// stored. Answers are not bound to anything; that is the transport's part.
package credential

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"math"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

const (
	// Header is where in a call's metadata its credential is.
	Header = "kernel-broker-credential"
	// MaxAge of a credential when its call comes in. It covers clocks that
	// differ, as well: Slurm bears no more than MUNGE's five minutes.
	MaxAge = time.Minute
	// clockLag: munged reads time(2), which moves on with the kernel's tick and
	// stays behind the clock that Go reads. Without it a credential of a new
	// second's first moment seems to be older than a broker that is not.
	clockLag = 100 * time.Millisecond

	format   = "kernel-broker/1"
	nonceLen = 16
)

// Why a genuine credential does not count. Each is kernelbroker.ErrUnauthenticated.
var (
	// ErrElsewhere: it was made for another cluster's broker.
	ErrElsewhere = fmt.Errorf("credential is for another cluster: %w", kb.ErrUnauthenticated)
	// ErrOtherCall: it was made for another method or another message.
	ErrOtherCall = fmt.Errorf("credential is for another call: %w", kb.ErrUnauthenticated)
	// ErrStale: it was made too long ago, or before the broker was there.
	ErrStale = fmt.Errorf("credential is too old: %w", kb.ErrUnauthenticated)
	// ErrUsed: it came with a call before.
	ErrUsed = fmt.Errorf("credential was used before: %w", kb.ErrUnauthenticated)
	// ErrNoClaim: its signed content is not a call to the broker at all.
	ErrNoClaim = fmt.Errorf("credential was not made for Kernel Broker: %w", kb.ErrUnauthenticated)
)

// Encoder makes a credential of a text in the name of its caller.
type Encoder interface {
	Encode(ctx context.Context, payload []byte, ttl time.Duration) (string, error)
}

// Claim is the signed content of a credential.
type Claim struct {
	Cluster, Method string
	Nonce, Digest   string // in hex
}

// Make returns a fresh credential for one call.
func Make(ctx context.Context, encoder Encoder, cluster, method string, message proto.Message) (string, error) {
	var nonce [nonceLen]byte
	_, _ = rand.Read(nonce[:]) // never fails, it ends the program instead
	claim := Claim{Cluster: cluster, Method: method, Nonce: hex.EncodeToString(nonce[:]), Digest: Digest(message)}
	return encoder.Encode(ctx, claim.payload(), MaxAge)
}

func (c Claim) payload() []byte {
	return []byte(strings.Join([]string{format, c.Cluster, c.Method, c.Nonce, c.Digest}, " "))
}

var claimText = regexp.MustCompile(`^` + format + ` ([^ ]*) ([^ ]*) ([0-9a-f]{32}) ([0-9a-f]{64})$`)

// parseClaim is the inverse of payload, and strict.
func parseClaim(payload []byte) (Claim, error) {
	parts := claimText.FindStringSubmatch(string(payload))
	if parts == nil {
		return Claim{}, ErrNoClaim
	}
	return Claim{Cluster: parts[1], Method: parts[2], Nonce: parts[3], Digest: parts[4]}, nil
}

// Digest of a message: equal messages have one digest, whichever program encoded them.
// protobuf's own encoding promises that within one program only, and client
// and broker are two.
//
// Each field that is set counts with its number, in their order; lists with
// their length; maps in the order of their keys' digests; a message within with
// its own digest; and fields that this program does not know as they came.
func Digest(message proto.Message) string {
	if message == nil {
		return hex.EncodeToString(make([]byte, sha256.Size))
	}
	sum := digestOf(message.ProtoReflect())
	return hex.EncodeToString(sum[:])
}

func digestOf(m protoreflect.Message) (sum [sha256.Size]byte) {
	d := digester{sha256.New()}
	d.text(string(m.Descriptor().FullName()))
	var fields []protoreflect.FieldDescriptor
	m.Range(func(f protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		fields = append(fields, f)
		return true
	})
	slices.SortFunc(fields, func(a, b protoreflect.FieldDescriptor) int { return int(a.Number()) - int(b.Number()) })
	for _, f := range fields {
		d.number(uint64(f.Number()))
		d.field(f, m.Get(f))
	}
	d.number(0) // no field has it
	d.text(string(m.GetUnknown()))
	d.hash.Sum(sum[:0])
	return sum
}

// digester writes each thing so that its end is known from its begin.
type digester struct{ hash hash.Hash }

func (d digester) number(n uint64) {
	d.hash.Write(binary.BigEndian.AppendUint64(nil, n))
}

func (d digester) text(s string) {
	d.number(uint64(len(s)))
	d.hash.Write([]byte(s))
}

func (d digester) field(f protoreflect.FieldDescriptor, v protoreflect.Value) {
	switch {
	case f.IsMap():
		d.entries(f, v.Map())
	case f.IsList():
		list := v.List()
		d.number(uint64(list.Len()))
		for i := range list.Len() {
			d.value(f.Kind(), list.Get(i))
		}
	default:
		d.value(f.Kind(), v)
	}
}

func (d digester) entries(f protoreflect.FieldDescriptor, m protoreflect.Map) {
	var sums []string
	m.Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
		entry := digester{sha256.New()}
		entry.value(f.MapKey().Kind(), k.Value())
		entry.value(f.MapValue().Kind(), v)
		sums = append(sums, string(entry.hash.Sum(nil)))
		return true
	})
	slices.Sort(sums)
	d.number(uint64(len(sums)))
	for _, sum := range sums {
		d.text(sum)
	}
}

func (d digester) value(kind protoreflect.Kind, v protoreflect.Value) {
	d.number(uint64(kind))
	switch kind {
	case protoreflect.BoolKind:
		if v.Bool() {
			d.number(1)
		} else {
			d.number(0)
		}
	case protoreflect.StringKind:
		d.text(v.String())
	case protoreflect.BytesKind:
		d.text(string(v.Bytes()))
	case protoreflect.EnumKind:
		d.number(uint64(v.Enum()))
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		d.number(math.Float64bits(v.Float()))
	case protoreflect.MessageKind, protoreflect.GroupKind:
		sum := digestOf(v.Message())
		d.text(string(sum[:]))
	case protoreflect.Uint32Kind, protoreflect.Uint64Kind, protoreflect.Fixed32Kind, protoreflect.Fixed64Kind:
		d.number(v.Uint())
	default:
		d.number(uint64(v.Int()))
	}
}

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
	return &Verifier{decoder: o.Decoder, cluster: o.Cluster, now: o.Now, began: o.Now().Add(-clockLag).Truncate(time.Second),
		memory: memory{users: map[uint32]map[string]time.Time{}}}
}

// VerifiedUser is who makes a call, once the call's message is found to be the one
// that was signed.
type VerifiedUser struct {
	UID, GID uint32
	Host     netip.Addr
	digest   string
}

// Verify judges a credential that came with a call of a method. It counts as
// used from here on, whatever becomes of the call. With an error it returns
// whose the credential seems to be, for the record, if that is known.
func (v *Verifier) Verify(ctx context.Context, credential, method string) (*VerifiedUser, error) {
	decoded, err := v.decoder.Decode(ctx, credential)
	if err != nil {
		return claimedUser(decoded), err
	}
	p := &VerifiedUser{UID: decoded.UID, GID: decoded.GID, Host: decoded.Host}
	claim, err := parseClaim(decoded.Payload)
	if err != nil {
		return p, err
	}
	p.digest = claim.Digest
	switch age := decoded.Decoded.Sub(decoded.Encoded); {
	case claim.Cluster != v.cluster:
		return p, fmt.Errorf("credential says %q, this is the broker of %q (cluster in client.yaml and broker.yaml): %w",
			claim.Cluster, v.cluster, ErrElsewhere)
	case claim.Method != method:
		return p, fmt.Errorf("credential says %q: %w", claim.Method, ErrOtherCall)
	case age > MaxAge || age < -MaxAge:
		return p, fmt.Errorf("credential was made %v before it came, at most %v either way are taken (do the clocks agree?): %w",
			age, MaxAge, ErrStale)
	case decoded.Encoded.Before(v.began):
		return p, fmt.Errorf("credential was made before this broker began to listen, make another one: %w", ErrStale)
	}
	return p, v.memory.add(v.now(), decoded.UID, claim.Nonce)
}

func claimedUser(v Decoded) *VerifiedUser {
	if v.Encoded.IsZero() || v.Encoded.Unix() == 0 {
		return nil
	}
	return &VerifiedUser{UID: v.UID, GID: v.GID, Host: v.Host}
}

// Binds reports whether the message is the one that was signed.
func (p *VerifiedUser) Binds(message proto.Message) error {
	if p.digest == "" || Digest(message) != p.digest {
		return fmt.Errorf("the message is not the one that was signed: %w", ErrOtherCall)
	}
	return nil
}

// How many calls are remembered, of each user and of all. Nobody makes as many
// within the time by hand, and one user must not fill it for the others.
const (
	mostOfUser    = 1 << 14
	MaxRemembered = 1 << 18
	// RememberedFor is longer than any credential counts.
	RememberedFor = 2*MaxAge + 2*time.Second
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
	if len(used) >= mostOfUser || m.all >= MaxRemembered {
		return fmt.Errorf("uid %d made %d calls within %v, and there is no room to remember more: %w",
			uid, len(used), RememberedFor, kb.ErrUnavailable)
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
			if now.Sub(at) > RememberedFor {
				delete(used, nonce)
				m.all--
			}
		}
		if len(used) == 0 {
			delete(m.users, uid)
		}
	}
}
