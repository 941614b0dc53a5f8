// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"strconv"
	"strings"
	"testing"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

const answer = "11          |0           |PENDING             |\n12          |4           |RUNNING             |\n"

func TestStateOf(t *testing.T) {
	if restart, state, err := stateOf(answer, 12); err != nil || restart != 4 || state != "RUNNING" {
		t.Errorf("job 12: %d, %q, %v", restart, state, err)
	}
	for _, out := range []string{"", "\n", "12\n", "12|4\n", "x|4|RUNNING|\n", "12|x|RUNNING|\n", "12|4|RUNNING|x|\n", "11|0|RUNNING|\n", "4294967308|4|RUNNING|\n"} {
		if restart, state, err := stateOf(out, 12); err == nil {
			t.Errorf("%q is %d, %q", out, restart, state)
		}
	}
}

func FuzzStateOf(f *testing.F) {
	f.Add(answer)
	f.Add("12|-1||\n")
	f.Fuzz(func(t *testing.T, out string) {
		restart, state, err := stateOf(out, 12)
		if err == nil && (!strings.Contains(out, strconv.FormatUint(uint64(restart), 10)) || !strings.Contains(out, state)) {
			t.Errorf("%q is %d, %q", out, restart, state)
		}
	})
}

// The environment is slurmctld's, but the profile and all variables that Slurm does not set are the user's.
func FuzzJobOf(f *testing.F) {
	f.Add("12", "0", "", "", "", "", "mitgcm@3", "n[1-2],gpu07")
	f.Add("12", "", "11", "3", "", "", "stock", "n1")
	f.Add("13", "1", "", "", "12", "1", "", "")
	f.Add("4294967296", "-1", "x", "4294967295", "1", "", "../x", "n[1-99999999]")
	f.Fuzz(func(t *testing.T, id, restart, array, task, het, offset, profile, nodes string) {
		environment := map[string]string{
			"SLURM_JOB_ID": id, "SLURM_JOB_RESTART_COUNT": restart, "SLURM_ARRAY_JOB_ID": array, "SLURM_ARRAY_TASK_ID": task,
			"SLURM_HET_JOB_ID": het, "SLURM_HET_JOB_OFFSET": offset, profileVariable: profile, "SLURM_JOB_NODELIST": nodes,
		}
		getenv := func(name string) string { return environment[name] }
		wants := wantsKernel(getenv)
		if ref, err := kb.ParseRef(profile); err == nil && wants == ref.IsStock() && profile != "" {
			t.Errorf("profile %q: wanted is %v", profile, wants)
		}
		j, err := jobOf(getenv)
		if err != nil {
			return
		}
		// They become arguments of scontrol.
		for _, reference := range []string{j.reference, j.whole} {
			first, second, two := strings.Cut(strings.Replace(reference, "+", "_", 1), "_")
			_, err := strconv.ParseUint(first, 10, 32)
			if two && err == nil {
				_, err = strconv.ParseUint(second, 10, 32)
			}
			if err != nil {
				t.Errorf("%q parses as a job", reference)
			}
		}
		if j.id.Job == 0 {
			t.Error("job 0")
		}
		if j.readNodes(getenv) == nil {
			for _, name := range j.nodes {
				if name == "" {
					t.Errorf("%q has a node without a name", nodes)
				}
			}
		}
	})
}
