// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"slices"
	"testing"

	"google.golang.org/grpc/codes"

	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
)

// Each lookup is a process on slurmctld's host: nobody has names looked up that he may not ask about.
func TestPolicyLooksUpWhomOneMayAskAbout(t *testing.T) {
	f := trust(t)
	for _, c := range []struct {
		who     string
		uid     uint32
		about   string
		code    codes.Code
		allowed bool
		looked  bool
	}{
		{"alice about nobody", plainUser, "nobody-1", codes.PermissionDenied, false, false},
		{"alice about another", plainUser, "carol", codes.PermissionDenied, false, false},
		{"alice about herself", plainUser, "", codes.OK, false, false},
		{"alice by her name", plainUser, "alice", codes.OK, false, false},
		{"alice by her uid", plainUser, "4242", codes.OK, false, true},
		{"carol by her name", carol, "carol", codes.OK, true, false},
		{"an administrator", operator, "carol", codes.OK, true, true},
		{"an administrator about nobody", operator, "nobody-1", codes.NotFound, false, true},
	} {
		got, err := api.NewPolicyServiceClient(f.by(t, c.uid)).TestPolicy(t.Context(), &api.TestPolicyRequest{User: c.about, Action: "use", Object: "mitgcm"})
		want(t, c.who, err, c.code, "")
		if got.GetAllowed() != c.allowed {
			t.Errorf("%s: %v", c.who, got)
		}
		if asked := f.people.lookups(); slices.Contains(asked, c.about) != c.looked {
			t.Errorf("%s: looked up %q", c.who, asked)
		}
	}
}
