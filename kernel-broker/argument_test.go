// SPDX-License-Identifier: Apache-2.0

package kernelbroker_test

import (
	"errors"
	"strings"
	"testing"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// A profile may not set parameters that belong to the node; the error names the argument and its owner.
func TestOwnedArguments(t *testing.T) {
	refused := map[string]string{
		"initrd=/x": "the node's boot loader", "BOOT_IMAGE=/vmlinuz": "the node's boot loader",
		"kernelbroker.token=0": "the broker", "kernelbroker.begin": "the broker",
		"rootwait": "the node", "kb.node=n9": "the node",
	}
	for _, name := range kb.NodeParameters() {
		refused[strings.ReplaceAll(name, "*", "x")+"=1"] = "the node"
		refused[strings.ReplaceAll(strings.ReplaceAll(name, "*", "x"), "_", "-")] = "the node"
	}
	for argument, owner := range refused {
		err := kb.ValidateArguments([]string{"quiet", argument})
		if !errors.Is(err, kb.ErrInvalid) || !strings.Contains(err.Error(), argument) || !strings.Contains(err.Error(), "belongs to "+owner) {
			t.Errorf("%s: %v", argument, err)
		}
	}
	for _, argument := range []string{
		"initcall_blacklist=x", "rootless", "rdx", "rd", "kb", "ipv6.disable=1", "panic_on_oops=1", "nohz_full=1-3", "mitigations=off",
	} {
		if err := kb.ValidateArguments([]string{argument}); err != nil {
			t.Errorf("%s: %v", argument, err)
		}
	}
}

func TestInvalidArguments(t *testing.T) {
	for _, argument := range []string{"", "=1", "-x", "a b", `a="b"`, "a;b", "a\nb", "caf\u00e9", strings.Repeat("x", 300)} {
		if err := kb.ValidateArguments([]string{argument}); !errors.Is(err, kb.ErrInvalid) {
			t.Errorf("%q: %v", argument, err)
		}
	}
	if err := kb.ValidateArguments(make([]string, 100)); !errors.Is(err, kb.ErrInvalid) {
		t.Errorf("a hundred: %v", err)
	}
}

func TestParameters(t *testing.T) {
	p := kb.Parameters{"rd.*", "no_timer_check"}
	for argument, want := range map[string]bool{
		"rd.": true, "rd.x=1": true, "rdx": false, "no-timer-check": true, "no_timer_check=1": true, "no_timer": false, "": false,
	} {
		if got := p.Has(argument); got != want {
			t.Errorf("%q: %v", argument, got)
		}
	}
}
