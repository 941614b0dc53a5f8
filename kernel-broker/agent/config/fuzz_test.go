// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"errors"
	"reflect"
	"testing"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// An accepted configuration satisfies all checks and represents the whole file.
func FuzzParse(f *testing.F) {
	f.Add([]byte("broker: ctl:7440\n"))
	f.Add([]byte("node: n1\nbroker: '[::1]:1'\nkexec:\n  program: /sbin/kexec\n"))
	f.Add([]byte("a: &a [*a]\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := Parse("agent.yaml", text)
		if err != nil {
			if !errors.Is(err, kb.ErrInvalid) {
				t.Errorf("%q: %v", text, err)
			}
			return
		}
		if c.validate() != nil {
			t.Errorf("%q became %+v", text, c)
		}
		if again, err := Parse("agent.yaml", text); err != nil || !reflect.DeepEqual(again, c) {
			t.Errorf("%q is %+v, and then %+v, %v", text, c, again, err)
		}
		// Such a line starts another document anywhere.
		if more, err := Parse("agent.yaml", append(bytes.Clone(text), "\n---\nno-such-key: 1\n"...)); err == nil {
			t.Errorf("content after %q is ignored: %+v", text, more)
		}
	})
}
