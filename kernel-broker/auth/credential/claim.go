// SPDX-License-Identifier: Apache-2.0

package credential

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

const (
	// Header is where in a call's metadata its credential is.
	Header = "kernel-broker-credential"
	// MaxAge of a credential when its call comes in. It covers clocks that
	// differ, as well: Slurm bears no more than MUNGE's five minutes.
	MaxAge = time.Minute

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
	// ErrNoClaim: what it vouches for is not a call to the broker at all.
	ErrNoClaim = fmt.Errorf("credential was not made for Kernel Broker: %w", kb.ErrUnauthenticated)
)

// Encoder makes a credential of a text in the name of its caller.
type Encoder interface {
	Encode(ctx context.Context, payload []byte, ttl time.Duration) (string, error)
}

// Claim is what a credential vouches for.
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

// ValidateCluster accepts names that fit into a claim.
func ValidateCluster(name string) error {
	if name == "" || len(name) > 64 || strings.ContainsFunc(name, func(c rune) bool { return c <= ' ' || c > '~' || c == '/' }) {
		return fmt.Errorf("cluster name %q is not one word of up to 64 printable characters without a slash: %w", name, kb.ErrInvalid)
	}
	return nil
}

func (c Claim) payload() []byte {
	return []byte(strings.Join([]string{format, c.Cluster, c.Method, c.Nonce, c.Digest}, " "))
}

// parseClaim is the inverse of payload, and strict.
func parseClaim(payload []byte) (Claim, error) {
	words := strings.Split(string(payload), " ")
	if len(words) != 5 || words[0] != format {
		return Claim{}, ErrNoClaim
	}
	c := Claim{Cluster: words[1], Method: words[2], Nonce: words[3], Digest: words[4]}
	if len(c.Nonce) != 2*nonceLen || !isHex(c.Nonce) || len(c.Digest) != 64 || !isHex(c.Digest) {
		return Claim{}, ErrNoClaim
	}
	return c, nil
}

func isHex(text string) bool {
	raw, err := hex.DecodeString(text)
	return err == nil && hex.EncodeToString(raw) == text
}
