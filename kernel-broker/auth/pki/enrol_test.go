// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"errors"
	"reflect"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// MayEnrol says what Enrol would, word for word, and changes nothing.
func TestMayEnrol(t *testing.T) {
	s := newSite(t)
	first, second := newAsker(t), newAsker(t)
	unused := s.token("n2").Secret
	expired := s.token("n3").Secret
	used := s.token("n1").Secret
	ask := func(what, node, secret string, request []byte, wanted error) {
		t.Helper()
		before, _, err := s.registry.get(t.Context(), node)
		if err != nil {
			t.Fatal(err)
		}
		may := s.registry.MayEnrol(t.Context(), node, secret, request)
		after, _, err := s.registry.get(t.Context(), node)
		if err != nil || !reflect.DeepEqual(before, after) {
			t.Errorf("%s: %+v became %+v, %v", what, before, after, err)
		}
		_, does := s.registry.Enrol(t.Context(), node, secret, request)
		if !errors.Is(may, wanted) || !errors.Is(does, wanted) || may != nil && may.Error() != does.Error() {
			t.Errorf("%s: it may: %v; it does: %v", what, may, does)
		}
	}
	ask("no request", "n2", unused, []byte("none"), kb.ErrInvalid)
	ask("another's token", "n1", unused, first.request, kb.ErrDenied)
	ask("no node", "n9", unused, first.request, kb.ErrDenied)
	ask("a token", "n1", used, first.request, nil)
	ask("the same once more", "n1", used, first.request, nil)
	ask("its copy", "n1", used, second.request, kb.ErrDenied)
	if err := s.registry.Revoke(t.Context(), "n2", "test", ""); err != nil {
		t.Fatal(err)
	}
	ask("a revoked one", "n2", unused, first.request, kb.ErrDenied)
	s.clock.pass(DefaultTokenTTL + time.Second)
	ask("an expired one", "n3", expired, first.request, kb.ErrDenied)
}
