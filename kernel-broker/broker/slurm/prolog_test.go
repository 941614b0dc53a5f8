// SPDX-License-Identifier: Apache-2.0

package slurm

import (
	"errors"
	"strings"
	"testing"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

func TestUndoPrologDrain(t *testing.T) {
	const (
		by      = "slurm@2026-11-23T11:41:17"
		drained = "NodeName=n1 State=IDLE+DRAIN Reason=Prolog error [slurm@2026-11-23T11:41:17]"
		user    = "SlurmUser               = slurm(64030)\n"
	)
	for _, c := range []struct {
		name, config, node, by string
		undone                 bool
		err                    error
	}{
		{"no prolog", user + "Prolog                  = (null)\nPrEpPlugins             = prep/script\n", drained, by, true, nil},
		{"a version that lists none", user + "PrologFlags             = Alloc\nPrologSlurmctld         = /x\nPrologEpilogTimeout = 720\n", drained, by, true, nil},
		{"a prolog", user + "Prolog                  = /etc/slurm/prolog.sh\n", drained, by, false, kb.ErrFailedPrecondition},
		{"several prologs", user + "Prolog[0]               = /etc/slurm/prolog.sh\n", drained, by, false, kb.ErrFailedPrecondition},
		{"another PrEp plugin", user + "PrEpPlugins             = prep/site\n", drained, by, false, kb.ErrFailedPrecondition},
		{"an administrator gave the reason", user, drained, "root@2026-11-23T11:41:17", false, kb.ErrFailedPrecondition},
		{"an odd configuration", "Configuration data\n", drained, by, false, kb.ErrUnavailable},
		{"resumed", user, "NodeName=n1 State=IDLE", by, false, nil},
		{"drained again", user, strings.Replace(drained, ":17]", ":18]", 1), by, false, nil},
		{"an administrator's words since", user, strings.Replace(drained, "Prolog error", "bad DIMM", 1), by, false, nil},
		{"no node", user, "", by, false, kb.ErrUnavailable},
	} {
		t.Run(c.name, func(t *testing.T) {
			client, log := fake(t, "case \"$*\" in 'show config') printf '%s' '"+c.config+"';; *'show node n1') echo '"+c.node+"';; esac", "")
			err := client.UndoPrologDrain(t.Context(), "n1", c.by)
			if !errors.Is(err, c.err) || (err == nil) != (c.err == nil) {
				t.Errorf("error %v", err)
			}
			if did := strings.Contains(log(), "<update> <nodename=n1> <state=undrain>"); did != c.undone {
				t.Errorf("ran\n%s", log())
			}
		})
	}
}
