// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"log/slog"
	"testing"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/credential"
)

// Root on a node makes good credentials of any number of users. What the broker remembers of them leaves room for the
// users at other addresses.
func TestGoodCredentialsOfOneAddress(t *testing.T) {
	g := newQuotas(DefaultLimits(), rootOnly, slog.New(slog.DiscardHandler))
	most := 0
	for ; ; most++ {
		done, err := g.decode(t.Context(), "10.0.0.1")
		if err != nil {
			if !errors.Is(err, kb.ErrExhausted) {
				t.Fatal(err)
			}
			break
		}
		g.proven.Take("10.0.0.1")
		done()
		if most > credential.MaxRemembered {
			t.Fatal("one address fills the memory of credentials")
		}
	}
	inMemory := most + int(provenRate.PerSecond*credential.RememberedFor.Seconds())
	if inMemory > credential.MaxRemembered/12 {
		t.Errorf("one address may have %d of the %d credentials that are remembered", inMemory, credential.MaxRemembered)
	}
	done, err := g.decode(t.Context(), "10.0.0.2")
	if err != nil {
		t.Fatalf("another address: %v", err)
	}
	done()
}
