// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/audit"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/authz"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/mtls"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/pki"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/server"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
	"github.com/kernelbroker/kernelbroker/tests/support/memstore"
)

// reserve is a record that has room for changes alone.
type reserve struct {
	mu      sync.Mutex
	entries []audit.Entry
	waited  []bool
	before  func(audit.Entry) // may be nil
}

func (*reserve) HasSpace() bool { return false }

func (r *reserve) Append(e audit.Entry, wait bool) (uint64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.before != nil {
		r.before(e)
	}
	r.entries, r.waited = append(r.entries, e), append(r.waited, wait)
	return uint64(len(r.entries)), nil
}

// of are the records of a method, and which of them were waited for.
func (r *reserve) of(via string) (entries []audit.Entry, waited []bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, e := range r.entries {
		if e.Via == via {
			entries, waited = append(entries, e), append(waited, r.waited[i])
		}
	}
	return entries, waited
}

// counted is what the authorizer says at its end to have left out.
func (r *reserve) counted(t *testing.T, g *authz.Authorizer) (refused uint64) {
	t.Helper()
	if err := g.NoteBroker("stop", ""); err != nil {
		t.Fatal(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.entries {
		if e.Kind == authz.KindUnrecorded && e.Action == "refused" {
			refused += e.Unrecorded
		}
	}
	return refused
}

// reserved is an authorizer with such a record.
func reserved(t *testing.T) (*authz.Authorizer, *reserve) {
	t.Helper()
	tape := &reserve{}
	g, err := authz.New(authz.Options{Always: []uint32{0}, Record: tape, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return g, tape
}

func certificateRequest(t *testing.T) []byte {
	t.Helper()
	key, err := mtls.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	request, err := mtls.NewRequest(key)
	if err != nil {
		t.Fatal(err)
	}
	return request
}

// Who has no token that counts changes nothing: his enrolments are counted, and
// none of them is in the room that is for what jobs need.
func TestJunkTokensLeaveTheReserveAlone(t *testing.T) {
	const times = 20
	for name, c := range map[string]struct {
		tls  bool
		code codes.Code
	}{"with TLS": {true, codes.PermissionDenied}, "without TLS": {false, codes.FailedPrecondition}} {
		t.Run(name, func(t *testing.T) {
			g, tape := reserved(t)
			var conn *grpc.ClientConn
			secret := ""
			use := func(o *server.Options) { o.Authorizer = g }
			if c.tls {
				s := serveTLSWith(t, time.Hour, both, use)
				conn, secret = s.anybody(), s.token("n8").Secret
			} else {
				token, err := mtls.NewToken("n1", "sha256:"+strings.Repeat("ab", 32))
				if err != nil {
					t.Fatal(err)
				}
				conn, secret = serve(t, use, both).remote(t), token.Secret
			}
			trust, request := api.NewTrustServiceClient(conn), certificateRequest(t)
			for n := range times {
				_, err := trust.Enrol(t.Context(), &api.EnrolRequest{Node: fmt.Sprint("n", n%5), Secret: secret, CertificateRequest: request})
				want(t, "an enrolment", err, c.code, "")
			}
			_, err := trust.Enrol(t.Context(), &api.EnrolRequest{Node: "n8", Secret: secret, CertificateRequest: []byte("none")})
			if err == nil {
				t.Error("enrolled without a request for a certificate")
			}
			refused := uint64(times + 1)
			if !c.tls { // with it a node has shown its certificate
				_, err := trust.Renew(t.Context(), &api.RenewRequest{CertificateRequest: request})
				want(t, "a renewal", err, c.code, "")
				refused++
			}
			for _, via := range []string{"Enrol", "Renew"} {
				if entries, _ := tape.of(via); len(entries) > 0 {
					t.Errorf("%d records: %+v", len(entries), entries[0])
				}
			}
			if n := tape.counted(t, g); n != refused {
				t.Errorf("%d of %d refusals are counted", n, refused)
			}
		})
	}
}

// fragile is a store that fails once when it is told to.
type fragile struct {
	store.Store
	armed atomic.Bool
}

func (f *fragile) Commit(ctx context.Context, writes ...store.Write) (int64, error) {
	if f.armed.CompareAndSwap(true, false) {
		return 0, store.ErrUnavailable
	}
	return f.Store.Commit(ctx, writes...)
}

// A token that counts is on record, on the disk, before it is used, however
// little room there is; and so is that it was used in vain.
func TestATokenIsOnRecordBeforeItIsUsed(t *testing.T) {
	g, tape := reserved(t)
	kept := &fragile{Store: memstore.New()}
	var registry *pki.Registry
	s := serveTLSWith(t, time.Hour, both, func(o *server.Options) {
		o.Authorizer = g
		var err error
		registry, err = pki.OpenRegistry(t.Context(), pki.RegistryOptions{Store: kept, Cluster: "lab",
			Authority: o.TLS.Source.(*pki.Authority), Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		o.TLS.Registry = registry
	})
	trust, request, secret := api.NewTrustServiceClient(s.anybody()), certificateRequest(t), s.token("n1").Secret
	tape.mu.Lock()
	tape.before = func(e audit.Entry) {
		if e.Kind != authz.KindDecision || e.Via != "Enrol" {
			return
		}
		list, err := registry.List(context.Background(), "n1")
		if err != nil || len(list) != 1 || len(list[0].Issued) != 0 || list[0].Token.Key != "" {
			t.Errorf("as it came on record: %+v, %v", list, err)
		}
	}
	tape.mu.Unlock()
	for n, c := range []struct {
		fails   bool
		code    codes.Code
		outcome string
	}{{true, codes.Unavailable, "unavailable"}, {false, codes.OK, "ok"}} {
		kept.armed.Store(c.fails)
		_, err := trust.Enrol(t.Context(), &api.EnrolRequest{Node: "n1", Secret: secret, CertificateRequest: request})
		want(t, "an enrolment", err, c.code, "")
		entries, waited := tape.of("Enrol")
		if len(entries) != 2*n+2 {
			t.Fatalf("%d records: %+v", len(entries), entries)
		}
		before, after := entries[2*n], entries[2*n+1]
		if before.Kind != authz.KindDecision || before.Object != "n1" || before.Allowed != nil || !waited[2*n] {
			t.Errorf("before it: %+v, waited for: %v", before, waited[2*n])
		}
		if after.Kind != authz.KindOutcome || after.Of == 0 || (after.Allowed != nil) == c.fails || !strings.Contains(after.Outcome, c.outcome) {
			t.Errorf("after it: %+v", after)
		}
	}
}
