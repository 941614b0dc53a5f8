// SPDX-License-Identifier: Apache-2.0

package kexec

import (
	"errors"
	"strings"
	"testing"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/proof"
)

const (
	oldToken = "0123456789abcdef0123456789abcdef"
	newToken = "fedcba9876543210fedcba9876543210"
)

var keep = Keep{"root", "ro", "console", "panic", "kb.*", "net.ifnames", "site.*"}

func TestComposeKeepsNodeArguments(t *testing.T) {
	running := `BOOT_IMAGE=/vmlinuz root=UUID=1 ro console=tty0 console=ttyS0,115200 quiet nosmt kb.node=n1 net.ifnames=0 ` +
		"initrd=x kernelbroker.token=" + oldToken + " -- ro"
	got, err := compose(running, keep, []string{"nohz_full=1-3", "mitigations=off"}, nil, newToken)
	want := "kernelbroker.begin root=UUID=1 ro console=tty0 console=ttyS0,115200 kb.node=n1 net.ifnames=0 nohz_full=1-3 mitigations=off kernelbroker.token=" + newToken
	if err != nil || got != want {
		t.Fatalf("got %q, %v", got, err)
	}
}

// Arguments built into a kernel precede the given ones. They do not accumulate: the line of the hundredth boot is as
// long as that of the first.
func TestComposeOmitsBuiltInArguments(t *testing.T) {
	firmwares := "root=/dev/vda ro console=tty0 console=ttyS0 panic=10 console=tty0"
	line, err := compose(firmwares, keep, nil, nil, oldToken)
	if err != nil {
		t.Fatal(err)
	}
	for _, builtIn := range []string{"ro panic=3 site.rack=7", "quiet", `kb.x="a b" kernelbroker.begin`, ""} {
		next := line
		for range 100 {
			if next, err = compose(builtIn+" "+next, keep, []string{"nosmt"}, nil, oldToken); err != nil {
				t.Fatalf("%q built in: %v", builtIn, err)
			}
		}
		want, err := compose(firmwares, keep, []string{"nosmt"}, nil, oldToken)
		if err != nil || next != want {
			t.Errorf("%q built in: %q, %v, want %q", builtIn, next, err, want)
		}
	}
}

func TestComposeAlwaysDropsOldToken(t *testing.T) {
	got, err := compose("kernelbroker.token="+oldToken, Keep{"*"}, nil, nil, newToken)
	if err != nil || strings.Contains(got, oldToken) {
		t.Fatalf("got %q, %v", got, err)
	}
}

func TestComposeRefuses(t *testing.T) {
	long := "kb.x=" + strings.Repeat("x", 1900)
	for _, c := range []struct {
		name, running string
		profile       []string
		token         string
		want          error
	}{
		{"root by the profile", "", []string{"root=/dev/sdb"}, newToken, kb.ErrInvalid},
		{"a kept name by the profile", "", []string{"net.ifnames=1"}, newToken, kb.ErrInvalid},
		{"one that only this node keeps", "", []string{"site.rack=1"}, newToken, kb.ErrFailedPrecondition},
		{"two arguments in one", "", []string{"quiet init=/bin/sh"}, newToken, kb.ErrInvalid},
		{"no token", "", nil, "", kb.ErrInvalid},
		{"too long", long, []string{"a=" + strings.Repeat("y", 200)}, newToken, kb.ErrFailedPrecondition},
	} {
		if _, err := compose(c.running, keep, c.profile, nil, c.token); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if line, err := compose(long, keep, nil, nil, newToken); err != nil || len(line) > maxLength {
		t.Errorf("a line that fits was refused: %v", err)
	}
}

func FuzzCompose(f *testing.F) {
	f.Add("root=/dev/vda ro quiet", "nosmt")
	f.Add(`a="b c -- root=x`, "isolcpus=1,2")
	f.Add(`console="ttyS0 115200`, "isolcpus=1,2")
	f.Fuzz(func(t *testing.T, running, argument string) {
		line, err := compose(running, keep, []string{argument}, nil, newToken)
		if err != nil {
			return
		}
		if len(line) > maxLength {
			t.Fatalf("%d bytes", len(line))
		}
		if got := proof.Value(proof.Split(line), kb.TokenParameter); got != newToken {
			t.Fatalf("token %q in %q", got, line)
		}
		if again, err := compose(line, keep, []string{argument}, nil, newToken); err != nil || again != line {
			t.Fatalf("%q, then %q, %v", line, again, err)
		}
		own := strings.TrimSuffix(strings.TrimSuffix(strings.TrimPrefix(line, "kernelbroker.begin "), " kernelbroker.token="+newToken), argument)
		for _, kept := range proof.Split(own) {
			if !keep.Owns(kept) {
				t.Fatalf("%q survived from %q", kept, running)
			}
		}
	})
}
