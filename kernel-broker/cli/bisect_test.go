// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/culprit"
)

func TestBisectRefuses(t *testing.T) {
	f := newFixture(t)
	cache := t.TempDir()
	f.must(2, "accepts 1 arg(s), received 0", "kernel", "bisect", "--cache", cache)
	f.must(2, `profile name "MITgcm"`, "kernel", "bisect", "MITgcm", "--cache", cache)
	f.must(1, `kernel "nothing": no such recipe`, "kernel", "bisect", "nothing", "--cache", cache, "--catalog", "../../catalog")
	f.must(1, `kernel "slim": its recipe has no profile of objects`, "kernel", "bisect", "slim", "--cache", cache, "--catalog", "../../catalog")
}

func TestBisectPage(t *testing.T) {
	for want, o := range map[string]culprit.Outcome{
		"The kernel boots with all its profiles.\n": {Kernels: 1},
		`With all profiles the kernel does not boot: panic. Without those of the following it boots (12 kernels were built).
For the recipe:

exclude:
  - object: fs/namei.o
    reason: the kernel does not boot with its profile
`: {Fault: "the kernel does not boot: panic", Culprits: []string{"fs/namei.o"}, Kernels: 12},
	} {
		p := &page{}
		bisectPage(p, o)
		p.flush()
		if got := p.text.String(); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	}
}
