// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"google.golang.org/grpc"

	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/authz"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/mtls"
)

func TestWhereCallersAre(t *testing.T) {
	n1 := mtls.Peer{Name: mtls.Name{Role: mtls.Node, Cluster: "lab", Name: "n1"}}
	for _, c := range []struct {
		caller       Caller
		holder, host string
	}{
		{Caller{Local: true, UID: 7}, "uid 7", ""},
		{Caller{Address: "192.0.2.7:1000"}, "192.0.2.7", "192.0.2.7"},
		{Caller{Address: "192.0.2.7:1000", Verified: true, UID: 7}, "uid 7 by MUNGE", "192.0.2.7"},
		{Caller{Address: "[::ffff:192.0.2.7]:1000"}, "192.0.2.7", "192.0.2.7"},
		{Caller{Address: "[2001:db8:1:2:3::4]:1000"}, "2001:db8:1:2::/64", "2001:db8:1:2::/64"},
		{Caller{Address: "[2001:db8:1:2:3::4]:1000", Verified: true, UID: 7}, "uid 7 by MUNGE", "2001:db8:1:2::/64"},
		{Caller{Address: "[fe80::1%eth0]:1000"}, "fe80::/64", "fe80::/64"},
		{Caller{Address: "[::1]:1000"}, "::1", "::1"},
		{Caller{Address: "127.0.0.2:1000"}, "127.0.0.2", "127.0.0.2"},
		{Caller{Address: "192.0.2.7:1000", Node: n1}, "node n1", "node n1"},
		{Caller{Address: "192.0.2.7:1000", Node: n1, Verified: true, UID: 7}, "uid 7 by MUNGE", "node n1"},
		{Caller{Address: "unknown"}, "unknown", "unknown"},
	} {
		if a := c.caller.subject(); a.Holder != c.holder || a.Host != c.host {
			t.Errorf("%v: %q at %q", c.caller, a.Holder, a.Host)
		}
	}
}

// Root on one node calls as many users, and the refusals and reads of others stay
// on record: of these users elsewhere, too.
func TestRefusalsOfOneNodeDoNotHideOthers(t *testing.T) {
	const uids, times, most = 1000, 20, 2 * 2000
	g, tape := recording(t)
	now := time.Now()
	var err error
	if g.authorizer, err = authz.New(authz.Options{Always: []uint32{0}, Record: tape, Log: g.log, Now: func() time.Time { return now }}); err != nil {
		t.Fatal(err)
	}
	tape.entries = nil
	at := func(address string, uid uint32) context.Context {
		return withCaller(t.Context(), Caller{Address: address + ":1000", Verified: true, UID: uid, Host: netip.MustParseAddr(address)})
	}
	call := func(ctx context.Context, method string, request any) {
		// What comes of it is told by the record.
		_, _ = g.unary(ctx, request, &grpc.UnaryServerInfo{FullMethod: method}, func(context.Context, any) (any, error) { return nil, nil })
	}
	read := func(ctx context.Context) {
		call(ctx, api.CatalogService_ListProfiles_FullMethodName, &api.ListProfilesRequest{})
	}
	refused := func(ctx context.Context) {
		call(ctx, api.TrustService_RotateAuthority_FullMethodName, &api.RotateAuthorityRequest{})
	}
	for uid := range uint32(uids) {
		for range times {
			read(at("192.0.2.7", 5000+uid))
			refused(at("192.0.2.7", 5000+uid))
		}
	}
	flood := len(tape.entries)
	if flood < most/2 || flood > most {
		t.Errorf("%d records of %d calls", flood, 2*uids*times)
	}
	for _, address := range []string{"192.0.2.8", "198.51.100.1"} {
		read(at(address, 5000))
		refused(at(address, 5000))
	}
	for i, e := range tape.entries[flood:] {
		if e.Kind != authz.KindDecision || e.Allowed == nil || *e.Allowed != (i%2 == 0) || (e.Unrecorded != 0) != (i < 2) {
			t.Errorf("%d: %+v", i, e)
		}
	}
	if n := len(tape.entries) - flood; n != 4 {
		t.Errorf("%d records of 4 calls of others: %+v", n, tape.entries[flood:])
	}
}
