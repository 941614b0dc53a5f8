// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
	"time"
)

// The site's own step runs between slurmd's end and the kexec.
func TestBeforeTheKexec(t *testing.T) {
	b := newFakeBroker(t)
	n := newFakeNode(t, b.address)
	n.script("before", `#!/bin/sh
cd "$DIR" || exit 9
read -r pid <slurmd.pid
case $(cat "/proc/$pid/stat" 2>/dev/null) in *'(slurmd) S'*) echo "slurmd was up" >>violations ;; esac
[ ! -e executed ] || echo "the kexec came first" >>violations
touch unmounted
`)
	n.config.Kexec.Before = []string{n.path("before")}
	b.setDesired(desiredStock(1))
	n.up()
	b.slurmd(true, 1)
	b.setDesired(desiredSwitch(mitgcm(b), 7))
	n.until("the kexec", func() bool { return n.exists("executed") })
	if !n.exists("unmounted") {
		t.Error("the site's step did not run")
	}
}

// A step that fails, or does not end, leaves the node on its kernel.
func TestNoKexecWithoutTheStep(t *testing.T) {
	for _, c := range []struct{ name, script, cause string }{
		{"fails", "#!/bin/sh\necho 'umount: /lustre: target is busy' >&2\nexit 32\n", "exit status 32: umount: /lustre: target is busy"},
		{"does not end", "#!/bin/sh\nexec sleep 1000\n", "not done within 300ms"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newFakeBroker(t)
			n := newFakeNode(t, b.address)
			n.script("before", c.script)
			n.config.Kexec.Before, n.config.Kexec.BeforeTimeout = []string{n.path("before")}, 300*time.Millisecond
			b.setDesired(desiredStock(1))
			n.up()
			b.slurmd(true, 1)
			w := b.setDesired(desiredSwitch(mitgcm(b), 7))
			r := b.report(w.Generation, failed)
			if r.Failure != nodeFault || !strings.Contains(r.Detail, c.cause) {
				t.Errorf("failure %v: %s", r.Failure, r.Detail)
			}
			b.never(executing)
			b.setDesired(desiredStock(2))
			b.slurmd(true, 2)
			if n.exists("executed") || strings.TrimSpace(n.read("sys/kernel/kexec_loaded")) != "0" {
				t.Error("the kernel is still loaded, or was booted")
			}
		})
	}
}

// systemctl kexec returns at once, and the machine ends its services, the agent among them.
func TestFullShutdown(t *testing.T) {
	b := newFakeBroker(t)
	n := newFakeNode(t, b.address)
	n.script("full", "#!/bin/sh\ncd \"$DIR\" || exit 9\ngrep -q 1 sys/kernel/kexec_loaded && touch executed\n")
	n.config.Kexec.Execute = []string{n.path("full")}
	b.setDesired(desiredStock(1))
	n.up()
	b.slurmd(true, 1)
	w := b.setDesired(desiredSwitch(mitgcm(b), 7))
	b.report(w.Generation, executing)
	n.kexecs()
	if strings.Contains(n.read("kexec.log"), "-e") {
		t.Error("the program booted the kernel, too")
	}
	n.up()
	if h := b.hello(2); h.Token != token(7) {
		t.Errorf("hello: %v", h)
	}
	b.never(failed)
}
