// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"os"
	"strings"
	"testing"
)

// program makes the site's own RebootProgram, which writes down its arguments.
func (h *host) program() {
	h.t.Helper()
	h.write("site-reboot", "#!/bin/sh\necho \"$@\" >>"+h.path("rebooted")+"\n")
	if err := os.Chmod(h.path("site-reboot"), 0o755); err != nil {
		h.t.Fatal(err)
	}
	h.write("client.yaml", h.read("client.yaml")+"reboot_program: "+h.path("site-reboot")+"\n")
}

// The site's own program reboots nodes without an agent.
func TestRebootWithoutAgent(t *testing.T) {
	t.Parallel()
	for name, configured := range map[string]bool{"a program": true, "none": false} {
		h := newHost(t)
		h.broker.others = []string{"n2", "n3"}
		h.serve()
		want := ""
		if configured {
			h.program()
			want = "n2,n3\n"
		}
		if code, output, _ := h.run([]string{asHook + "=1"}, rebootName, "--config", h.path("client.yaml"), "n[1-3]"); code != 0 {
			t.Errorf("%s: exit %d: %s", name, code, output)
		}
		_, _, reboots := h.broker.seen()
		if got := h.read("rebooted"); got != want || len(reboots) != 1 || reboots[0].GetHasProgram() != configured {
			t.Errorf("%s: %q, noted %v", name, got, reboots)
		}
	}
}

// Without a broker, slurmctld's reason tells an administrator's reboot from a return.
func TestRebootWithoutBroker(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.program()
	h.write("scontrol", strings.Replace(h.read("scontrol"), "case", `case "$*" in
"--oneliner show node n1,n2,n3,n4")
	echo "NodeName=n1 State=DOWN+DRAIN+REBOOT_ISSUED Reason=kernel update : reboot issued [root@x]"
	echo "NodeName=n2 State=DOWN+DRAIN+REBOOT_ISSUED Reason=kprof: mitgcm@3 for job 7 : reboot issued [root@x]"
	echo "NodeName=n3 State=ALLOCATED+POWERING_UP"
	echo "NodeName=n4 State=IDLE Reason=State=REBOOT_ISSUED" ;;
esac
case`, 1))
	if code, output, _ := h.run([]string{asHook + "=1"}, rebootName, "--config", h.path("client.yaml"), "n[1-4]"); code != 0 {
		t.Errorf("exit %d: %s", code, output)
	}
	if got := h.read("rebooted"); got != "n1\n" {
		t.Errorf("%q, log %s", got, h.read("log"))
	}
}
