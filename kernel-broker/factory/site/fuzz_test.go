// SPDX-License-Identifier: Apache-2.0

package site

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// FuzzParse is the site's word on mitigations: no text may say "any" by mistake,
// and no argument that weakens the stock kernel passes without that word.
func FuzzParse(f *testing.F) {
	for _, text := range []string{"mitigations: any\n", "mitigations: stock", "mitigations: [any]", "mitigations:\n", "{}", "mitigation: any", "--- {}\n---\n", "&a mitigations: *a", "may_give_up: [limits, security]", ""} {
		f.Add([]byte(text), "mitigations=off")
	}
	f.Add([]byte("mitigations: stock"), "spectre-v2=auto,nosmt")
	f.Fuzz(func(t *testing.T, text []byte, argument string) {
		s, err := Parse("factory.yaml", text)
		if err != nil {
			if !errors.Is(err, kb.ErrInvalid) || !strings.HasPrefix(err.Error(), "factory.yaml:") {
				t.Errorf("%v does not name the file, or is not called invalid", err)
			}
			return
		}
		if s.Mitigations == Any && !strings.Contains(string(text), "any") && !strings.Contains(string(text), `\`) && !strings.Contains(string(text), "!!binary") {
			t.Errorf("%q says any", text)
		}
		again := fmt.Appendf(nil, "mitigations: %s\nmay_give_up: [%s]\n", s.Mitigations, strings.ReplaceAll(strings.Trim(fmt.Sprint(s.MayGiveUp), "[]"), " ", ","))
		if back, err := Parse("factory.yaml", again); err != nil || back.Mitigations != s.Mitigations || !slices.Equal(back.MayGiveUp, s.MayGiveUp) {
			t.Errorf("%+v came back as %+v, %v", s, back, err)
		}
		weak := s.Allow([]string{"quiet", "mitigations=off", "nopti"})
		if (weak == nil) != (s.Mitigations == Any) {
			t.Errorf("%+v allows to switch them off: %v", s, weak)
		}
		// What is refused is refused beside others too, and named.
		if err := s.Allow([]string{argument}); err != nil {
			if !errors.Is(err, kb.ErrFailedPrecondition) || !strings.Contains(err.Error(), argument) || s.Allow([]string{"quiet", argument}) == nil {
				t.Errorf("%q: %v", argument, err)
			}
		}
	})
}
