// SPDX-License-Identifier: Apache-2.0

package slurm

import (
	"errors"
	"strings"
	"testing"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

func TestCgroup(t *testing.T) {
	const (
		name    = "s1C5M8FXCH1800"
		byID    = "CgroupJobIdPaths        = yes"
		bySLUID = "CgroupJobIdPaths        = no"
		older   = "CgroupPlugin            = cgroup/v2"
	)
	for _, c := range []struct {
		name, config, jobs, want string
		err                      error
	}{
		{"an older Slurm", older, "", "", nil},
		{"by the job's id", byID, "", "", nil},
		{"by its SLUID", bySLUID, accountLine("7", name), name, nil},
		{"the last task of an array, with its id", bySLUID, accountLine("7", name) + accountLine("8", "s1C5M8FXCH1801"), name, nil},
		{"tasks that wait beside it", bySLUID, accountLine("7", name) + accountLine("7", "s1C5M8FXCH1801"), "", kb.ErrUnavailable},
		{"no such job", bySLUID, "", "", kb.ErrUnavailable},
		{"something else", bySLUID, accountLine("7", "../../x"), "", kb.ErrUnavailable},
	} {
		t.Run(c.name, func(t *testing.T) {
			client, log := fake(t, "[ \"$*\" = 'show config' ] && echo '"+c.config+"'", "printf '%s' '"+c.jobs+"'")
			got, err := client.Cgroup(t.Context(), 7)
			if got != c.want || !errors.Is(err, c.err) || (err == nil) != (c.err == nil) {
				t.Errorf("%q, %v", got, err)
			}
			if asked := strings.Contains(log(), "--jobs=7"); asked != (c.config == bySLUID) {
				t.Errorf("ran\n%s", log())
			}
		})
	}
	client, _ := fake(t, "exit 1", "")
	if _, err := client.Cgroup(t.Context(), 7); err == nil {
		t.Error("no error without slurmctld")
	}
}
