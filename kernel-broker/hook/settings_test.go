// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"os"
	"strings"
	"testing"
)

// Only an administrator can repair unreadable settings: the job is finally held with the reason, as without a broker.
func TestPrologWithUnreadableSettingsHoldsJob(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.write("client.yaml", h.read("client.yaml")+"brokr: here\n")
	for _, restart := range []string{"0", "0", "1", "2"} {
		h.job("CONFIGURING", int(restart[0]-'0'))
		code, output, _ := h.prolog("SLURM_JOB_RESTART_COUNT=" + restart)
		if code != 0 || !strings.Contains(output, `settings not read`) || !strings.Contains(h.read("log"), `unknown key \"brokr\"`) {
			t.Errorf("run %s: exit %d: %s", restart, code, output)
		}
		if held := len(h.held()) > 0; held != (restart == "2") {
			t.Errorf("run %s: held %v: %v", restart, held, h.asked())
		}
	}
	got := h.held()
	if len(got) != 3 || got[1] != "requeuehold incomplete 12" || !strings.HasPrefix(got[0], "update jobid=12 admincomment=kernel-broker: PrologSlurmctld cannot read its settings, job held; ask your administrator, then scontrol release (") ||
		!strings.Contains(got[0], `unknown key "brokr"`) {
		t.Errorf("scontrol: %q", got)
	}
	// A cancelled job must not be requeued.
	h.job("CANCELLED", 2)
	if code, output, _ := h.prolog("SLURM_JOB_RESTART_COUNT=2"); code != 0 {
		t.Errorf("of a job that left: exit %d: %s", code, output)
	}
	// The other hooks do not stop the job.
	if code, output, _ := h.run(environment(), epilogName, "--config", h.path("client.yaml")); code != 0 {
		t.Errorf("epilog: exit %d: %s", code, output)
	}
}

// Where the failures cannot be counted Slurm's own count ends the loop.
func TestPrologWithoutTallyHoldsByRestarts(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.write("client.yaml", h.read("client.yaml")+"brokr: here\n")
	if err := os.WriteFile(h.path("state"), []byte("no folder"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, restart := range []string{"0", "1", "2"} {
		h.job("CONFIGURING", int(restart[0]-'0'))
		code, output, _ := h.prolog("SLURM_JOB_RESTART_COUNT=" + restart)
		if held := len(h.held()) > 0; code != 0 || held != (restart == "2") || !strings.Contains(output, "failure not counted") {
			t.Errorf("run %s: exit %d, scontrol %q: %s", restart, code, h.asked(), output)
		}
	}
}
